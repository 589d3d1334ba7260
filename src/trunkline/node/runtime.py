"""A node's life: load, assemble, serve, drain, leave. run_node() reads as what such a process does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from trunkline.config import NodeConfig
from trunkline.index.publisher import IndexPublisher
from trunkline.node.assembly import Loaded, assemble, load
from trunkline.node.kv_source import KvSourceService
from trunkline.node.node import Node
from trunkline.rpc.server import RpcServer
from trunkline.rpc.signals import stop_requested
from trunkline.v1 import nodes_pb2

log = logging.getLogger(__name__)

Services = Callable[[Node], list[tuple[ServiceDescriptor, object]]]

KV_SOURCE = nodes_pb2.DESCRIPTOR.services_by_name["KvSource"]


async def run_node(config: NodeConfig, services: Services) -> None:
    """Runs one node until SIGTERM or SIGINT, drains it and returns. Raises what kept it from starting."""
    started = time.monotonic()
    stop = stop_requested()
    loaded = await asyncio.to_thread(load, config)
    async with serving(config, loaded, services) as (node, server, publisher):
        seconds = time.monotonic() - started
        log.info("ready in %.1f s: %s", seconds, node.record.model_dump_json(exclude={"fingerprint"}))
        await stop.wait()
        await drain(node, server, publisher)


@asynccontextmanager
async def serving(
    config: NodeConfig, loaded: Loaded, services: Services
) -> AsyncIterator[tuple[Node, RpcServer, IndexPublisher]]:
    """A node that answers calls and stands in the index; all of it is gone afterwards, in reverse order."""
    async with AsyncExitStack() as stack:
        server = RpcServer(config.listen)
        address = server.bind()
        record = loaded.record(config, address)
        publisher = IndexPublisher(config.redis_url, record, lambda: node.load())
        node = await stack.enter_async_context(assemble(config, loaded, record, publisher))
        server.add(KV_SOURCE, KvSourceService(node))
        for descriptor, servicer in services(node):
            server.add(descriptor, servicer)
        await server.start()
        stack.push_async_callback(server.stop, 0)
        await publisher.start()
        stack.push_async_callback(publisher.stop)
        await server.set_serving(True)
        yield node, server, publisher


async def drain(node: Node, server: RpcServer, publisher: IndexPublisher) -> None:
    """Refuses new requests; waits for running ones and for leases, as long as the grace allows."""
    log.info("draining")
    node.draining = True
    publisher.beat_now()
    await server.set_serving(False)
    if not await node.wait_idle(node.config.drain_grace_s):
        log.warning("grace of %.0f s is over; what still runs is cut off", node.config.drain_grace_s)
