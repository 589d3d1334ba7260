"""The PrefillNode service: a prompt in, handles of its blocks and the first token out."""

from __future__ import annotations

from collections.abc import AsyncIterator

from grpc.aio import ServicerContext

from trunkline.engine.request import Admitted, BlocksReady, Finished, Job, NewTokens, Request
from trunkline.log import request_id as log_request_id
from trunkline.node.node import Node
from trunkline.node.peer_prefix import pull_prefix
from trunkline.transfer.wire import batch_to_proto
from trunkline.v1 import nodes_pb2


class PrefillService:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def Prefill(
        self, start: nodes_pb2.PrefillRequest, context: ServicerContext
    ) -> AsyncIterator[nodes_pb2.PrefillEvent]:
        """Streams handles as blocks become full. One lease covers the whole table: what is held stays prefix-closed."""
        log_request_id.set(start.request_id)
        node = self._node
        has_peer = start.HasField("peer")
        lease_id, done, handed_over = "", False, False
        with node.request(start, Job.PREFILL, load_first=has_peer) as (request, events):
            try:
                ready, sent, pulled, first_token = 0, start.skip_blocks, 0, 0
                async for event in events:
                    match event:
                        case Admitted(cached_blocks=cached):
                            lease_id = node.leases.grant(request.block_table)
                            pulled = await pull_prefix(node, request, start.peer, cached) if has_peer else 0
                            ready = cached + pulled
                        case BlocksReady(count=ready):
                            node.leases.renew([lease_id])
                        case NewTokens(ids=ids):
                            first_token = ids[0]
                        case Finished():
                            # Set before the yield: once the event may be out, the lease is its reader's. A reader
                            # that holds every block already gets no handle and so will never release one.
                            done = True
                            handed_over = len(request.block_table) > start.skip_blocks
                            yield await self._done(request, lease_id, sent, first_token, pulled)
                    if ready > sent and not done:
                        batch = await node.handles(lease_id, request.block_table[sent:ready], sent)
                        yield nodes_pb2.PrefillEvent(handles=batch_to_proto(batch))
                        sent = ready
            finally:
                if lease_id and not handed_over:
                    node.leases.release(lease_id)

    async def _done(
        self, request: Request, lease_id: str, sent: int, first_token: int, pulled_blocks: int
    ) -> nodes_pb2.PrefillEvent:
        """The last event: all remaining handles, the partial block's among them, and what the prompt cost."""
        batch = await self._node.handles(lease_id, request.block_table[sent:], sent)
        cached_local = request.num_cached or 0
        cached_peer = pulled_blocks * self._node.limits.block_size
        done = nodes_pb2.PrefillDone(
            first_token=first_token,
            handles=batch_to_proto(batch),
            cached_local=cached_local,
            cached_peer=cached_peer,
            computed=request.prompt_len - cached_local - cached_peer,
            queue_ms=(request.admitted_at - request.submitted_at) * 1e3,
            prefill_ms=(request.first_token_at - request.admitted_at) * 1e3,
        )
        return nodes_pb2.PrefillEvent(done=done)
