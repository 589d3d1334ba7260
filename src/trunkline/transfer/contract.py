"""What moves between nodes, and the little that a way of moving bytes must do.

Knows block ids, handles and peers; refuses to know hashes, leases' terms, requests and gRPC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Changes whenever a node of the old version could misread one of the new.
PROTOCOL_VERSION = 1
DIGEST_BYTES = 16


class TransferError(Exception):
    """Bytes did not arrive: the peer is gone, unknown, too slow, or refused. Says which in words."""


@dataclass(frozen=True, kw_only=True)
class BlockHandle:
    """Names one leased block to a reader."""

    #: Place in the prompt, counted in blocks.
    index: int
    #: Physical block at the holder.
    block_id: int
    #: The life of its content there.
    generation: int
    #: XXH3-128 of its bytes.
    digest: bytes
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class HandleBatch:
    """Handles under one lease of one holder."""

    node: str
    epoch: str
    #: host:port of the holder's KvSource.
    address: str
    lease_id: str
    handles: tuple[BlockHandle, ...]


@dataclass(frozen=True, kw_only=True)
class PeerInfo:
    """What a handshake tells of a holder."""

    node: str
    epoch: str
    num_blocks: int
    block_bytes: int
    #: Address of block 0 in the holder's memory.
    base_address: int
    agent_metadata: bytes


class KvTransport(Protocol):
    """Moves whole blocks between this process's KV memory and its peers'. One event loop calls it."""

    #: For peers' handshakes.
    agent_metadata: bytes
    base_address: int

    async def connect(self, peer: PeerInfo) -> None:
        """Makes `peer.epoch` readable. Raises TransferError."""
        ...

    async def disconnect(self, epoch: str) -> None:
        """Forgets a peer; one that is unknown is no error."""
        ...

    async def read(self, epoch: str, remote_ids: Sequence[int], local_ids: Sequence[int], *, timeout_s: float) -> None:
        """Copies the peer's blocks `remote_ids` into `local_ids`, pairwise.

        When this returns or raises TransferError, nothing writes into the local blocks any more. A transfer that can
        not be stopped keeps it waiting past `timeout_s`; cancelling the caller does not stop it.
        """
        ...

    async def notify(self, epoch: str, message: bytes) -> None:
        """Tells the peer something; best effort."""
        ...

    def set_serving(self, active: bool) -> None:
        """Whether peers may be reading from here: only then does the transport spend time on them."""
        ...

    async def close(self) -> None: ...
