"""The reader's side of a handoff: handshake, read, digest check, renewal, release.

Knows handles, peers and the KvSource service; whose blocks it fills and what they mean is the caller's affair.
Wrong bytes are never reported as good: a block counts only when its digest matches. Faults of a peer are results,
not exceptions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc.aio

from trunkline.errors import TrunklineError
from trunkline.rpc.status import from_rpc_error
from trunkline.transfer.contract import BlockHandle, HandleBatch, KvTransport, TransferError
from trunkline.transfer.peers import Peer, PeerBook
from trunkline.transfer.wire import batch_from_proto, done_message
from trunkline.v1 import nodes_pb2

log = logging.getLogger(__name__)

RPC_TIMEOUT_S = 5.0
#: Digests of more blocks than this are computed off the event loop.
INLINE_DIGESTS = 8


@dataclass(frozen=True, kw_only=True)
class PullResult:
    """Which blocks (by index in the prompt) hold verified bytes now, and why the others do not."""

    ok: frozenset[int]
    failed: dict[int, str] = field(default_factory=dict)
    seconds: float
    nbytes: int


class Puller:
    """Lives on one event loop. Counters are totals since start."""

    def __init__(
        self,
        transport: KvTransport,
        peers: PeerBook,
        *,
        digest: Callable[[int], bytes],
        block_bytes: int,
        timeout_s: float,
    ) -> None:
        """`digest` gives the digest of a local block as it is now."""
        self._transport = transport
        self._peers = peers
        self._digest = digest
        self._block_bytes = block_bytes
        self._timeout_s = timeout_s
        self.pulled_blocks = 0
        self.failed_blocks: Counter[str] = Counter()

    async def pull(self, batch: HandleBatch, local_ids: Sequence[int]) -> PullResult:
        """Copies the blocks of `batch` into `local_ids`, pairwise, and checks them.

        The caller keeps the local blocks from any other use until this has ended; it ends within the pull timeout
        unless a transfer cannot be stopped. The lease is renewed from here on, until release().
        """
        started = time.monotonic()
        try:
            await self._read(batch, local_ids)
        except (TransferError, TrunklineError) as error:
            kind = "transfer" if isinstance(error, TransferError) else "refused"
            log.warning("pull of %d blocks from %s failed: %s", len(local_ids), batch.node, error)
            return self._result(batch, started, {h.index: (kind, str(error)) for h in batch.handles})
        wrong = await self._mismatches(batch.handles, local_ids)
        if wrong:
            log.error("%d of %d blocks from %s have another digest", len(wrong), len(local_ids), batch.node)
        return self._result(batch, started, {i: ("digest", "the digest differs") for i in wrong})

    async def lease(self, address: str, epoch: str, hashes: Sequence[bytes], *, skip_blocks: int) -> HandleBatch | None:
        """Handles of the longest prefix of `hashes` that the peer at `address` holds. None: nothing, or no answer."""
        try:
            peer = await self._peers.get(address, epoch, epoch)
            request = nodes_pb2.LeaseRequest(
                reader=peer.reader, fingerprint=peer.fingerprint, hashes=hashes, skip_blocks=skip_blocks
            )
            response = await peer.stub.Lease(request, timeout=RPC_TIMEOUT_S)
            batch = batch_from_proto(response.handles) if response.handles.handles else None
            if batch is not None:
                _check_answer(batch, epoch, range(skip_blocks, len(hashes)))
        except grpc.aio.AioRpcError as error:
            log.warning("no lease from %s: %s", address, from_rpc_error(error).message)
            return None
        except (TransferError, TrunklineError) as error:
            log.warning("no lease from %s: %s", address, error)
            return None
        return batch

    async def release(self, batch: HandleBatch) -> None:
        """Ends the batch's lease at its holder: by notification, and again by call, since either may be lost."""
        peer = self._peers.find(batch.address, batch.epoch)
        if peer is None:
            return
        peer.stop_renewing(batch.lease_id)
        try:
            await self._transport.notify(batch.epoch, done_message(batch.lease_id))
        except TransferError as error:
            log.info("%s was not notified: %s", batch.node, error)
        try:
            request = nodes_pb2.ReleaseRequest(lease_ids=[batch.lease_id])
            await peer.stub.Release(request, timeout=RPC_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.warning("lease at %s not released, it will expire: %s", batch.node, error.details())

    async def close(self) -> None:
        await self._peers.close()

    # -- inside

    async def _read(self, batch: HandleBatch, local_ids: Sequence[int]) -> None:
        peer: Peer = await self._peers.get(batch.address, batch.epoch, batch.node)
        for handle in batch.handles:
            if handle.nbytes != self._block_bytes or handle.block_id >= peer.info.num_blocks:
                raise TransferError(f"handle of block {handle.block_id} does not fit {batch.node}'s memory")
        peer.start_renewing(batch.lease_id)
        try:
            remote_ids = [handle.block_id for handle in batch.handles]
            await self._transport.read(batch.epoch, remote_ids, local_ids, timeout_s=self._timeout_s)
        except TransferError:
            await self._peers.forget(batch.address, batch.epoch)
            raise

    async def _mismatches(self, handles: Sequence[BlockHandle], local_ids: Sequence[int]) -> list[int]:
        def check() -> list[int]:
            return [
                handle.index
                for handle, local_id in zip(handles, local_ids, strict=True)
                if self._digest(local_id) != handle.digest
            ]

        return check() if len(local_ids) <= INLINE_DIGESTS else await asyncio.to_thread(check)

    def _result(self, batch: HandleBatch, started: float, failed: dict[int, tuple[str, str]]) -> PullResult:
        ok = frozenset(h.index for h in batch.handles if h.index not in failed)
        self.pulled_blocks += len(ok)
        self.failed_blocks.update(kind for kind, _ in failed.values())
        return PullResult(
            ok=ok,
            failed={index: reason for index, (_, reason) in failed.items()},
            seconds=time.monotonic() - started,
            nbytes=len(batch.handles) * self._block_bytes,
        )


def _check_answer(batch: HandleBatch, epoch: str, asked: range) -> None:
    """A peer's handles must be for blocks that were asked for, in order: any other would be written over good ones."""
    indexes = [handle.index for handle in batch.handles]
    if batch.epoch != epoch or indexes != list(asked)[: len(indexes)]:
        raise TransferError(f"{batch.node} answered with handles that were not asked for")
