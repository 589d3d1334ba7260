"""One request's blocks on their way in: handles from the router, pulls from holders, then the engine's word to go.

Knows the order of a handoff. Bytes, digests and leases' renewal are the puller's; blocks stay held through Node.pull().
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from trunkline.engine.request import Event, Request
from trunkline.errors import Cancelled, InvalidArgument
from trunkline.node.node import Node, failure
from trunkline.node.peer_prefix import contiguous
from trunkline.transfer.contract import HandleBatch
from trunkline.transfer.puller import PullResult
from trunkline.transfer.wire import batch_from_proto
from trunkline.v1 import common_pb2, nodes_pb2


class Loading:
    """Started once, when the request's blocks are reserved; stop() at the end of the call in any case."""

    def __init__(self, node: Node, request: Request) -> None:
        self._node = node
        self._request = request
        self._pulls: list[asyncio.Task[PullResult]] = []
        #: One batch per lease, for its release.
        self._leases: dict[str, HandleBatch] = {}
        self._asked: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        self.recomputed = 0

    def start(self, messages: AsyncIterator[nodes_pb2.DecodeInput], fail: Callable[[Event], None]) -> None:
        """Begins to read the router's messages. A fault ends the request through `fail`."""
        self._asked = set(range(self._request.num_committed))
        self._task = asyncio.create_task(self._run(messages, fail))

    async def stop(self) -> None:
        """Ends reading. Pulls in flight end by themselves; the leases are released after them, in the background."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._leases:
            self._node.background(self._release())

    @property
    def _results(self) -> list[PullResult]:
        return [pull.result() for pull in self._pulls if pull.done()]

    @property
    def transferred_blocks(self) -> int:
        return sum(len(result.ok) for result in self._results)

    @property
    def seconds(self) -> float:
        return sum(result.seconds for result in self._results)

    async def _run(self, messages: AsyncIterator[nodes_pb2.DecodeInput], fail: Callable[[Event], None]) -> None:
        request, node = self._request, self._node
        try:
            first_token = await self._read(messages)
            held = request.num_committed
            await asyncio.gather(*self._pulls)
            good = contiguous(held, {index for result in self._results for index in result.ok})
            self.recomputed = max(0, request.prompt_len - good * node.limits.block_size)
            node.engine.loaded(request, good, first_token)
            # The holder gets its blocks back now, not when the answer ends.
            node.background(self._release())
        except Exception as error:
            fail(failure(error))

    async def _read(self, messages: AsyncIterator[nodes_pb2.DecodeInput]) -> int:
        """Starts a pull for each batch of handles; returns the first token, which ends the router's part."""
        async for message in messages:
            match message.WhichOneof("event"):
                case "handles":
                    self._pull(message.handles)
                case "finished":
                    self._pull(message.finished.handles)
                    return self._checked(message.finished.first_token)
                case _:
                    raise InvalidArgument("event", "after start come handles, then finished")
        raise Cancelled("the call was half-closed before the prefill had finished")

    def _pull(self, proto: common_pb2.HandleBatch) -> None:
        if not proto.handles:
            return
        batch = batch_from_proto(proto)
        indexes = [handle.index for handle in batch.handles]
        if max(indexes) >= len(self._request.block_table) or len(set(indexes)) < len(indexes):
            raise InvalidArgument("handles", "indexes must be distinct and inside the prompt")
        if self._asked & set(indexes):
            raise InvalidArgument("handles", f"block {min(self._asked & set(indexes))} is here or on its way already")
        self._asked |= set(indexes)
        self._leases[batch.lease_id] = batch
        self._pulls.append(self._node.pull(self._request, batch))

    def _checked(self, token: int) -> int:
        if token >= self._node.limits.vocab_size:
            raise InvalidArgument("finished.first_token", f"{token} is outside the vocabulary")
        return token

    async def _release(self) -> None:
        if self._pulls:
            await asyncio.wait(self._pulls)
        while self._leases:
            _, batch = self._leases.popitem()
            await self._node.puller.release(batch)
