"""The router's process."""

from __future__ import annotations

import asyncio
import logging

from trunkline import model_store
from trunkline.config import RouterConfig
from trunkline.index.follower import IndexFollower
from trunkline.router.service import InferenceService
from trunkline.rpc.server import RpcServer
from trunkline.rpc.signals import stop_requested
from trunkline.tokenizer import Tokenizer
from trunkline.v1 import inference_pb2

log = logging.getLogger(__name__)

INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["Inference"]


async def serve(config: RouterConfig) -> None:
    """Runs a router until SIGTERM or SIGINT, lets running requests end and returns.

    Raises what kept it from starting.
    """
    stop = stop_requested()
    location = model_store.resolve(config.model)
    tokenizer = await asyncio.to_thread(Tokenizer.load, location)
    follower = IndexFollower(config.redis_url)
    server = RpcServer(config.listen)
    address = server.bind()
    await follower.start()
    service = InferenceService(config, tokenizer, follower, location.name)
    server.add(INFERENCE, service)
    await server.start()
    log.info("listening at %s", address)
    readiness = asyncio.create_task(_follow_readiness(service, follower, server))
    try:
        await stop.wait()
    finally:
        log.info("draining")
        service.draining = True
        readiness.cancel()
        await server.stop(config.drain_grace_s)
        await service.channels.close()
        await follower.stop()


async def _follow_readiness(service: InferenceService, follower: IndexFollower, server: RpcServer) -> None:
    """Healthy exactly while some pair of nodes can serve; also forgets channels to nodes that are gone."""
    serving = False
    while True:
        wanted = not serving
        await follower.wait_for(lambda wanted=wanted: service.view.ready is wanted, 5.0)
        if service.view.ready is not serving:
            serving = service.view.ready
            log.info("ready" if serving else "not ready: no pair of nodes is up")
            await server.set_serving(serving)
        await service.channels.keep_only([view.record.address for view in follower.nodes.values()])
