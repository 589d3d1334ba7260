"""The peers that this node reads from: channel, handshake, and the leases that are being renewed there.

One Peer per life of a process. A new life at the same address replaces the old one.
"""

from __future__ import annotations

import asyncio
import logging

import grpc.aio

from trunkline.errors import FailedPrecondition
from trunkline.rpc.client import open_channel
from trunkline.rpc.status import from_rpc_error
from trunkline.transfer.contract import PROTOCOL_VERSION, KvTransport, PeerInfo, TransferError
from trunkline.v1 import common_pb2, nodes_pb2, nodes_pb2_grpc

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 5.0


class Peer:
    """One holder, connected. Renews in one call all leases that start_renewing() named."""

    def __init__(
        self,
        info: PeerInfo,
        channel: grpc.aio.Channel,
        reader: common_pb2.NodeRef,
        fingerprint: bytes,
        renew_s: float,
    ) -> None:
        self.info = info
        self.reader = reader
        self.fingerprint = fingerprint
        self.stub = nodes_pb2_grpc.KvSourceStub(channel)
        self._channel = channel
        self._renew_s = renew_s
        self._leases: set[str] = set()
        self._renewals: asyncio.Task[None] | None = None

    def start_renewing(self, lease_id: str) -> None:
        self._leases.add(lease_id)
        if self._renewals is None:
            self._renewals = asyncio.create_task(self._renew())

    def stop_renewing(self, lease_id: str) -> None:
        self._leases.discard(lease_id)
        if not self._leases:
            self._stop()

    async def close(self) -> None:
        self._stop()
        await self._channel.close(None)

    def _stop(self) -> None:
        if self._renewals is not None:
            self._renewals.cancel()
            self._renewals = None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._renew_s)
            try:
                request = nodes_pb2.RenewRequest(lease_ids=list(self._leases))
                response = await self.stub.Renew(request, timeout=self._renew_s)
                self._leases -= set(response.unknown)
            except grpc.aio.AioRpcError as error:
                log.warning("leases at %s not renewed: %s", self.info.node, error.details())


class PeerBook:
    """All peers of one node, by (address, epoch)."""

    def __init__(
        self,
        transport: KvTransport,
        *,
        reader: common_pb2.NodeRef,
        fingerprint: bytes,
        block_bytes: int,
        renew_s: float,
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._fingerprint = fingerprint
        self._block_bytes = block_bytes
        self._renew_s = renew_s
        self._peers: dict[tuple[str, str], asyncio.Task[Peer]] = {}

    def find(self, address: str, epoch: str) -> Peer | None:
        """The peer, if it is connected."""
        task = self._peers.get((address, epoch))
        if task is None or not task.done() or task.cancelled() or task.exception():
            return None
        return task.result()

    async def get(self, address: str, epoch: str, node: str) -> Peer:
        """The peer, connected by now: pulls that come together shake hands once. `node` is for messages.

        Raises FailedPrecondition for a peer that does not fit, TransferError or Unavailable for one that is away.
        """
        key = (address, epoch)
        task = self._peers.get(key)
        if task is None:
            # No await between the look and the entry, or two pulls that come together would both connect.
            task = self._peers[key] = asyncio.create_task(self._connect(address, epoch, node))
            await self._forget_others_at(address, epoch)
        try:
            return await asyncio.shield(task)
        except Exception:
            if self._peers.get(key) is task:
                del self._peers[key]
            raise

    async def forget(self, address: str, epoch: str) -> None:
        """Drops a peer; the next get() shakes hands anew."""
        peer = self.find(address, epoch)
        self._peers.pop((address, epoch), None)
        if peer is not None:
            await self._transport.disconnect(epoch)
            await peer.close()

    async def close(self) -> None:
        for address, epoch in list(self._peers):
            await self.forget(address, epoch)

    async def _forget_others_at(self, address: str, epoch: str) -> None:
        for known_address, known_epoch in list(self._peers):
            if known_address == address and known_epoch != epoch:
                await self.forget(known_address, known_epoch)

    async def _connect(self, address: str, epoch: str, node: str) -> Peer:
        channel = open_channel(address)
        try:
            info = await self._handshake(channel, epoch, node)
            await self._transport.connect(info)
        except BaseException:
            await channel.close(None)
            raise
        return Peer(info, channel, self._reader, self._fingerprint, self._renew_s)

    async def _handshake(self, channel: grpc.aio.Channel, epoch: str, node: str) -> PeerInfo:
        request = nodes_pb2.HandshakeRequest(
            reader=self._reader,
            protocol=PROTOCOL_VERSION,
            fingerprint=self._fingerprint,
            block_bytes=self._block_bytes,
            epoch=epoch,
        )
        try:
            answer = await nodes_pb2_grpc.KvSourceStub(channel).Handshake(request, timeout=HANDSHAKE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, node=node) from error
        theirs = (answer.protocol, answer.fingerprint, answer.block_bytes, answer.holder.epoch)
        if theirs != (PROTOCOL_VERSION, self._fingerprint, self._block_bytes, epoch):
            raise FailedPrecondition(f"{node} answered the handshake with another protocol, KV layout or epoch")
        if not answer.agent_metadata or not answer.num_blocks:
            raise TransferError(f"{node} answered the handshake without its memory")
        return PeerInfo(
            node=node,
            epoch=epoch,
            num_blocks=answer.num_blocks,
            block_bytes=answer.block_bytes,
            base_address=answer.base_address,
            agent_metadata=answer.agent_metadata,
        )
