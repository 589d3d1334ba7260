"""The router's channels to nodes: one per address of a live node, closed when the node is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import grpc.aio

from trunkline.router.policy import Candidate
from trunkline.rpc.client import open_channel
from trunkline.v1 import nodes_pb2_grpc


class Channels:
    """One event loop owns it. Also keeps the short background calls that outlive a request."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def prefill(self, node: Candidate) -> nodes_pb2_grpc.PrefillNodeStub:
        return nodes_pb2_grpc.PrefillNodeStub(self._channel(node.address))

    def decode(self, node: Candidate) -> nodes_pb2_grpc.DecodeNodeStub:
        return nodes_pb2_grpc.DecodeNodeStub(self._channel(node.address))

    def kv_source(self, address: str) -> nodes_pb2_grpc.KvSourceStub:
        return nodes_pb2_grpc.KvSourceStub(self._channel(address))

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def keep_only(self, addresses: Iterable[str]) -> None:
        """Closes the channels to nodes that are gone."""
        for address in set(self._channels) - set(addresses):
            await self._channels.pop(address).close(None)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.keep_only([])

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return self._channels[address]
