"""The KvSource service: what peers and the router ask of any node that holds KV."""

from __future__ import annotations

from grpc.aio import ServicerContext

from trunkline.cache.block_hash import HASH_BYTES
from trunkline.errors import FailedPrecondition, InvalidArgument
from trunkline.node.node import Node
from trunkline.transfer.contract import PROTOCOL_VERSION
from trunkline.transfer.wire import batch_to_proto
from trunkline.v1 import common_pb2, nodes_pb2

MAX_LEASE_IDS = 10_000
ROLES = {
    "prefill": nodes_pb2.ROLE_PREFILL,
    "decode": nodes_pb2.ROLE_DECODE,
    "both": nodes_pb2.ROLE_BOTH,
}


class KvSourceService:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def Handshake(
        self, request: nodes_pb2.HandshakeRequest, context: ServicerContext
    ) -> nodes_pb2.HandshakeResponse:
        """Refuses, in words, a reader whose protocol, KV or idea of this process differs."""
        node = self._node
        mine = {
            "protocol": PROTOCOL_VERSION,
            "fingerprint": node.limits.fingerprint,
            "block_bytes": node.store.block_bytes,
            "epoch": node.record.epoch,
        }
        for name, value in mine.items():
            theirs = getattr(request, name)
            if theirs != value:
                shown = (theirs.hex(), value.hex()) if isinstance(theirs, bytes) else (theirs, value)
                raise FailedPrecondition(f"{name} differs: the reader has {shown[0]}, this node {shown[1]}")
        return nodes_pb2.HandshakeResponse(
            holder=common_pb2.NodeRef(name=node.record.name, epoch=node.record.epoch),
            protocol=PROTOCOL_VERSION,
            fingerprint=node.limits.fingerprint,
            block_bytes=node.store.block_bytes,
            num_blocks=node.limits.num_blocks,
            base_address=node.transport.base_address,
            agent_metadata=node.transport.agent_metadata,
        )

    async def Lease(self, request: nodes_pb2.LeaseRequest, context: ServicerContext) -> nodes_pb2.LeaseResponse:
        node = self._node
        if request.fingerprint != node.limits.fingerprint:
            raise FailedPrecondition("fingerprint differs: these hashes name other KV than this node holds")
        if any(len(h) != HASH_BYTES for h in request.hashes):
            raise InvalidArgument("hashes", f"each must have {HASH_BYTES} bytes")
        response = nodes_pb2.LeaseResponse(ttl_ms=int(node.leases.ttl_s * 1e3))
        leased = None if node.draining else node.leases.lease_prefix(request.hashes)
        if leased is not None:
            lease_id, block_ids = leased
            batch = await node.handles(lease_id, block_ids[request.skip_blocks :], request.skip_blocks)
            response.handles.CopyFrom(batch_to_proto(batch))
        return response

    async def Renew(self, request: nodes_pb2.RenewRequest, context: ServicerContext) -> nodes_pb2.RenewResponse:
        _check_count(request.lease_ids)
        unknown = self._node.leases.renew(request.lease_ids)
        return nodes_pb2.RenewResponse(unknown=unknown, ttl_ms=int(self._node.leases.ttl_s * 1e3))

    async def Release(self, request: nodes_pb2.ReleaseRequest, context: ServicerContext) -> nodes_pb2.ReleaseResponse:
        _check_count(request.lease_ids)
        for lease_id in request.lease_ids:
            self._node.leases.release(lease_id)
        return nodes_pb2.ReleaseResponse()

    async def State(self, request: nodes_pb2.StateRequest, context: ServicerContext) -> nodes_pb2.NodeState:
        node = self._node
        record, load, stats = node.record, node.load(), node.engine.scheduler.stats
        return nodes_pb2.NodeState(
            node=common_pb2.NodeRef(name=record.name, epoch=record.epoch),
            role=ROLES[record.role],
            address=record.address,
            model=record.model,
            fingerprint=record.fingerprint,
            dtype=record.dtype,
            block_size=record.block_size,
            blocks_total=record.num_blocks,
            blocks_free=load.blocks_free,
            blocks_cached=load.blocks_cached,
            blocks_referenced=load.blocks_referenced,
            blocks_leased=load.blocks_leased,
            leases=load.leases,
            running_requests=load.running,
            waiting_requests=load.waiting,
            prompt_tokens=stats.prompt_tokens,
            cached_tokens=stats.cached_tokens,
            computed_tokens=stats.computed_tokens,
            generated_tokens=stats.generated_tokens,
            preemptions=stats.preemptions,
            pulled_blocks=node.puller.pulled_blocks,
            failed_blocks=sum(node.puller.failed_blocks.values()),
            draining=node.draining,
            integrity_error=node.integrity_error() if request.verify else "",
        )


def _check_count(lease_ids: object) -> None:
    count = len(lease_ids)  # type: ignore[arg-type]
    if count > MAX_LEASE_IDS:
        raise InvalidArgument("lease_ids", f"{count} ids; at most {MAX_LEASE_IDS} in one call")
