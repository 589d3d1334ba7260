"""The DecodeNode service: handles in, tokens out.

A call has two halves side by side: Loading reads what the router sends and pulls the blocks, the call itself passes the
engine's events on. A block that does not arrive intact is computed here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from grpc.aio import ServicerContext

from trunkline.decode_node.loading import Loading
from trunkline.engine.request import Admitted, Finished, FinishReason, Job, NewTokens, Request
from trunkline.errors import InvalidArgument
from trunkline.log import request_id as log_request_id
from trunkline.node.node import Node
from trunkline.v1 import common_pb2, nodes_pb2

REASONS = {
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
}


class DecodeService:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def Decode(
        self, messages: AsyncIterator[nodes_pb2.DecodeInput], context: ServicerContext
    ) -> AsyncIterator[nodes_pb2.DecodeOutput]:
        """One request's decoding; see DecodeNode in nodes.proto for what comes and goes when."""
        start = await _start_of(messages)
        log_request_id.set(start.request_id)
        job = Job.FULL if start.compute_locally else Job.DECODE
        with self._node.request(start, job) as (request, events):
            loading = Loading(self._node, request)
            try:
                async for event in events:
                    match event:
                        case Admitted():
                            yield _reserved(event, request)
                            if job is Job.DECODE:
                                loading.start(messages, events.put)
                        case NewTokens(ids=ids):
                            yield nodes_pb2.DecodeOutput(tokens=nodes_pb2.Tokens(ids=ids))
                        case Finished(reason=reason):
                            yield _finished(reason, request, loading)
            finally:
                await loading.stop()


async def _start_of(messages: AsyncIterator[nodes_pb2.DecodeInput]) -> nodes_pb2.DecodeStart:
    async for message in messages:
        if message.WhichOneof("event") == "start":
            return message.start
        break
    raise InvalidArgument("event", "the first message must be start")


def _reserved(event: Admitted, request: Request) -> nodes_pb2.DecodeOutput:
    queue_ms = (request.admitted_at - request.submitted_at) * 1e3
    return nodes_pb2.DecodeOutput(reserved=nodes_pb2.Reserved(cached_blocks=event.cached_blocks, queue_ms=queue_ms))


def _finished(reason: FinishReason, request: Request, loading: Loading) -> nodes_pb2.DecodeOutput:
    finished = nodes_pb2.DecodeFinished(
        reason=REASONS[reason],
        transferred_blocks=loading.transferred_blocks,
        recomputed=loading.recomputed,
        transfer_ms=loading.seconds * 1e3,
    )
    if request.job is Job.FULL:
        finished.cached_local = request.num_cached or 0
        finished.computed = request.prompt_len - finished.cached_local
        finished.prefill_ms = (request.first_token_at - request.admitted_at) * 1e3
    return nodes_pb2.DecodeOutput(finished=finished)
