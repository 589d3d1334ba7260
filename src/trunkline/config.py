"""What can be configured, validated once when a process starts; frozen afterwards.

Each field says what it does and what turning it costs. Command-line options have the same names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trunkline.errors import InvalidArgument

DTYPES = ("auto", "float32", "bfloat16")
ROLES = ("prefill", "decode", "both")


def _check(condition: bool, name: str, message: str) -> None:
    if not condition:
        raise InvalidArgument(name, message)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The engine of one node."""

    #: Tokens of a block. Smaller finds more of a prefix, larger costs fewer hashes and descriptors.
    block_size: int = 16
    #: Blocks of the pool. None: from pool_bytes.
    num_blocks: int | None = None
    #: Bytes of the pool. None: a quarter of the memory that is free at start, at most 1 GiB.
    pool_bytes: int | None = None
    #: Tokens of one step. Larger computes prompts faster; running answers wait longer for a step.
    max_batched_tokens: int = 512
    #: Requests computed at once. Others wait in order.
    max_running: int = 64
    #: Longest prompt + answer in tokens. None: what the model was trained for.
    max_model_len: int | None = None
    #: "auto" is bfloat16 where the CPU (or GPU) computes in it, else float32.
    dtype: str = "auto"
    #: Threads of one step. None: all cores.
    threads: int | None = None

    def __post_init__(self) -> None:
        powers = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        _check(self.block_size in powers, "block_size", f"must be one of {powers}, not {self.block_size}")
        for name in ("num_blocks", "pool_bytes", "max_model_len", "threads"):
            value = getattr(self, name)
            _check(value is None or value >= 1, name, f"must be at least 1, not {value}")
        _check(self.num_blocks is None or self.pool_bytes is None, "pool_bytes", "give num_blocks or pool_bytes")
        _check(self.max_batched_tokens >= 1, "max_batched_tokens", "must be at least 1")
        _check(self.max_running >= 1, "max_running", "must be at least 1")
        _check(self.dtype in DTYPES, "dtype", f"must be one of {', '.join(DTYPES)}, not {self.dtype!r}")


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """One prefill or decode process."""

    role: str
    name: str
    model: str
    redis_url: str
    #: host:port of gRPC; port 0 takes a free one.
    listen: str = "127.0.0.1:0"
    engine: EngineConfig = field(default_factory=EngineConfig)
    #: A lease lives this long without renewal. Longer survives longer stalls of the reader and keeps blocks of
    #: a dead one longer.
    lease_ttl_s: float = 30.0
    #: Renewals are sent this often; at most a third of the lease, so that two may be lost.
    lease_renew_s: float = 5.0
    #: A pull that takes longer counts as failed and its blocks are computed.
    pull_timeout_s: float = 10.0
    #: SIGTERM waits this long for running requests.
    drain_grace_s: float = 30.0

    def __post_init__(self) -> None:
        _check(self.role in ROLES, "role", f"must be one of {', '.join(ROLES)}, not {self.role!r}")
        _check(bool(self.name), "name", "must not be empty")
        _check(
            0 < self.lease_renew_s <= self.lease_ttl_s / 3,
            "lease_renew_s",
            "must be above 0, at most lease_ttl_s/3",
        )
        _check(self.pull_timeout_s > 0, "pull_timeout_s", "must be above 0")
        _check(self.drain_grace_s >= 0, "drain_grace_s", "must not be negative")


@dataclass(frozen=True, kw_only=True)
class RouterConfig:
    """One router process."""

    model: str
    redis_url: str
    name: str = "router"
    listen: str = "127.0.0.1:50051"
    #: A prefill node takes a request for its longer prefix only while its queue, the request included, is within
    #: this factor of the mean queue. Nearer 1 balances, larger hits more.
    balance_factor: float = 1.5
    drain_grace_s: float = 30.0

    def __post_init__(self) -> None:
        _check(self.balance_factor >= 1, "balance_factor", "must be at least 1")
        _check(self.drain_grace_s >= 0, "drain_grace_s", "must not be negative")
