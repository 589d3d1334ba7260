"""One request inside an engine: its tokens, its blocks, how far its KV is computed.

Knows no gRPC and no torch. The scheduler alone writes it, under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from trunkline.cache.block_hash import ExtraKeys, hash_blocks
from trunkline.errors import TrunklineError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen; every field resolved, nothing left to a default of the node's own."""

    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False


class Job(Enum):
    """What a node is to do with a request."""

    #: Compute the prompt and the first token; the blocks stay with the request until release().
    PREFILL = auto()
    #: The prompt's KV and the first token come from elsewhere, through loaded(); then decode.
    DECODE = auto()
    #: All of it here.
    FULL = auto()


class Phase(Enum):
    WAITING = auto()  # holds no blocks
    LOADING = auto()  # holds its prompt's blocks, which others fill
    RUNNING = auto()  # gets tokens computed, step by step
    FINISHED = auto()


class FinishReason(Enum):
    STOP = "stop"
    LENGTH = "length"


# -- what a request's owner hears, in this order: Admitted, then BlocksReady and NewTokens, then Finished or Failed


@dataclass(frozen=True)
class Admitted:
    """Blocks for the prompt are held, the first `cached_blocks` of them with content."""

    cached_blocks: int


@dataclass(frozen=True)
class BlocksReady:
    """The first `count` blocks of the table are full and will not change."""

    count: int


@dataclass(frozen=True)
class NewTokens:
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Finished:
    reason: FinishReason


@dataclass(frozen=True)
class Failed:
    error: TrunklineError


Event = Admitted | BlocksReady | NewTokens | Finished | Failed


class Request:
    """Made by a node, given to Engine.submit(), ended by Engine.release() whatever happened in between."""

    def __init__(
        self,
        *,
        request_id: str,
        token_ids: Sequence[int],
        sampling: Sampling,
        job: Job,
        block_size: int,
        hash_seed: bytes,
        sink: Callable[[Event], None],
        extra_keys: ExtraKeys | None = None,
        load_first: bool = False,
    ) -> None:
        """`sink` gets the events, on the thread that Engine's `deliver` chooses. `load_first` makes a PREFILL request
        wait in LOADING for blocks that a peer holds; a DECODE request always does."""
        self.id = request_id
        self.prompt_len = len(token_ids)
        #: Prompt and answer.
        self.token_ids = list(token_ids)
        self.sampling = sampling
        self.job = job
        self.sink = sink
        self.load_first = load_first or job is Job.DECODE
        self.phase = Phase.WAITING
        #: Physical block of each block_size positions.
        self.block_table: list[int] = []
        #: Leading tokens whose KV is in the blocks.
        self.num_computed = 0
        #: Leading blocks of the table that are committed to the pool under their hashes.
        self.num_committed = 0
        #: Prompt tokens that the cache held at first admission.
        self.num_cached: int | None = None
        #: Those that write into its blocks now: a step in flight, pulls. Its blocks are not freed before 0.
        self.holds = 0
        #: Its owner let go of it.
        self.released = False
        self.submitted_at = 0.0
        self.admitted_at = 0.0
        self.first_token_at = 0.0
        self._block_size = block_size
        self._hash_seed = hash_seed
        self._extra_keys = extra_keys
        self._hashes: list[bytes] = []

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def num_uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_size)

    def block_hashes(self, blocks: int) -> list[bytes]:
        """Hashes of the first `blocks` blocks, which must be full of known tokens. Each is computed once."""
        if len(self._hashes) < blocks:
            done = len(self._hashes)
            keys = {i - done: pairs for i, pairs in (self._extra_keys or {}).items() if i >= done}
            tokens = self.token_ids[done * self._block_size : blocks * self._block_size]
            seed = self._hashes[-1] if done else self._hash_seed
            self._hashes += hash_blocks(tokens, self._block_size, seed, keys)
        return self._hashes[:blocks]
