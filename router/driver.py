"""Carries out a flow's actions over gRPC and brings it what happens, in one queue.

When a request ends, in whatever way, its calls are cancelled and its leases released before anything else is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc.aio

from trunkline.errors import Unavailable
from trunkline.router.channels import Channels
from trunkline.router.flow import (
    CallFailed,
    Emit,
    Event,
    Finish,
    Flow,
    FromDecode,
    FromPrefill,
    Ledger,
    OpenDecode,
    OpenPrefill,
    ToDecode,
)
from trunkline.router.policy import Candidate, Decision
from trunkline.rpc.status import from_rpc_error
from trunkline.v1 import nodes_pb2

log = logging.getLogger(__name__)

RELEASE_TIMEOUT_S = 5.0


class FlowDriver:
    """One request. run() is iterated once, aclose() is called in any case."""

    def __init__(self, channels: Channels, decision: Decision, ledger: Ledger, timeout_s: float | None) -> None:
        """`timeout_s` is what is left of the client's deadline; it is every node call's too."""
        self._channels = channels
        self._decision = decision
        self._ledger = ledger
        self._timeout_s = timeout_s
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._to_decode: asyncio.Queue[nodes_pb2.DecodeInput | None] = asyncio.Queue()
        #: Epoch of the node whose call failed, for its suspicion.
        self.failed_node: Candidate | None = None
        self.finished = False

    async def run(self, flow: Flow) -> AsyncIterator[Emit | Finish]:
        """What the client is to get. Raises what it is to be told instead."""
        actions = next(flow)
        while True:
            for action in actions:
                if isinstance(action, Emit | Finish):
                    self.finished = isinstance(action, Finish)
                    yield action
                else:
                    self._carry_out(action)
            if self.finished:
                return
            event = await self._events.get()
            if isinstance(event, CallFailed) and isinstance(event.error, Unavailable):
                self.failed_node = event.node
            actions = flow.send(event)

    async def aclose(self) -> None:
        """Ends what is still open. Leases are released at their holders even if nobody pulled."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for lease_id, address in self._ledger.leases.items():
            self._channels.background(self._release(address, lease_id))

    def _carry_out(self, action: OpenDecode | OpenPrefill | ToDecode) -> None:
        match action:
            case OpenDecode(start=start):
                self._to_decode.put_nowait(nodes_pb2.DecodeInput(start=start))
                self._tasks.append(asyncio.create_task(self._decode(self._decision.decode)))
            case OpenPrefill(request=request):
                assert self._decision.prefill is not None
                self._tasks.append(asyncio.create_task(self._prefill(self._decision.prefill, request)))
            case ToDecode(message=message):
                self._to_decode.put_nowait(message)
                if message.HasField("finished"):
                    self._to_decode.put_nowait(None)

    async def _decode(self, node: Candidate) -> None:
        call = self._channels.decode(node).Decode(self._decode_inputs(), timeout=self._timeout_s)
        try:
            async for output in call:
                self._events.put_nowait(FromDecode(output))
                if output.HasField("finished"):
                    return
            self._fail(node, Unavailable(f"node {node.name} ended its answer early", node.name))
        except grpc.aio.AioRpcError as error:
            self._events.put_nowait(CallFailed(node, from_rpc_error(error, node=node.name)))
        finally:
            call.cancel()

    async def _decode_inputs(self) -> AsyncIterator[nodes_pb2.DecodeInput]:
        while (message := await self._to_decode.get()) is not None:
            yield message

    async def _prefill(self, node: Candidate, request: nodes_pb2.PrefillRequest) -> None:
        call = self._channels.prefill(node).Prefill(request, timeout=self._timeout_s)
        try:
            async for event in call:
                self._events.put_nowait(FromPrefill(event))
                if event.HasField("done"):
                    await call.code()  # the node counts the call as done only once its end is read
                    return
            self._fail(node, Unavailable(f"node {node.name} ended the prefill early", node.name))
        except grpc.aio.AioRpcError as error:
            self._events.put_nowait(CallFailed(node, from_rpc_error(error, node=node.name)))
        finally:
            call.cancel()

    def _fail(self, node: Candidate, error: Unavailable) -> None:
        self._events.put_nowait(CallFailed(node, error))

    async def _release(self, address: str, lease_id: str) -> None:
        try:
            request = nodes_pb2.ReleaseRequest(lease_ids=[lease_id])
            await self._channels.kv_source(address).Release(request, timeout=RELEASE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.info("lease at %s not released, it will expire: %s", address, error.details())
