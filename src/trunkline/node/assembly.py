"""How a node's parts are made and joined: model, KV memory, pool, engine, leases, transport, puller."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from trunkline import model_store
from trunkline.cache.block_hash import seed_hash
from trunkline.cache.block_pool import BlockPool
from trunkline.config import EngineConfig, NodeConfig
from trunkline.engine.engine import Engine
from trunkline.engine.fingerprint import fingerprint
from trunkline.engine.kv_store import KvStore, block_bytes, num_blocks
from trunkline.engine.model_runner import Model, ModelRunner
from trunkline.engine.scheduler import Scheduler
from trunkline.engine.weights import load_model, weights_digest
from trunkline.index.records import NodeRecord
from trunkline.node.lease_keeper import LeaseKeeper
from trunkline.node.node import Node, deliver_on
from trunkline.node.requests import Limits
from trunkline.transfer.contract import PROTOCOL_VERSION
from trunkline.transfer.nixl_transport import NixlTransport
from trunkline.transfer.peers import PeerBook
from trunkline.transfer.puller import Puller
from trunkline.v1 import common_pb2


class IndexEvents(Protocol):
    """Who is told what the pool holds."""

    def stored(self, hashes: Sequence[bytes]) -> None: ...
    def removed(self, hashes: Sequence[bytes]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What is on hand before a socket is opened."""

    model_name: str
    model: Model
    store: KvStore
    fingerprint: bytes
    dtype_name: str
    blocks: int
    block_size: int
    max_model_len: int

    def record(self, config: NodeConfig, address: str) -> NodeRecord:
        """This life of the process, as the index shows it."""
        return NodeRecord(
            name=config.name,
            role=config.role,  # type: ignore[arg-type]
            epoch=uuid.uuid4().hex,
            address=address,
            model=self.model_name,
            fingerprint=self.fingerprint.hex(),
            block_size=self.block_size,
            block_bytes=self.store.block_bytes,
            num_blocks=self.blocks,
            max_model_len=self.max_model_len,
            vocab_size=self.model.config.vocab_size,
            dtype=self.dtype_name,
            protocol=PROTOCOL_VERSION,
            started_at=time.time(),
        )


def choose_dtype(name: str) -> torch.dtype:
    """ "auto" is bfloat16 where the CPU multiplies in it, else float32."""
    if name == "auto":
        fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return torch.bfloat16 if fast else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def load(config: NodeConfig) -> Loaded:
    """Reads the model and takes the KV memory. Seconds of work; raises NotFound for a model that is not there."""
    engine: EngineConfig = config.engine
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    location = model_store.resolve(config.model)
    dtype = choose_dtype(engine.dtype)
    dtype_name = str(dtype).removeprefix("torch.")
    model = load_model(location, dtype=dtype)
    blocks = num_blocks(engine, block_bytes(model.config, engine.block_size, dtype))
    longest = model.config.max_position
    return Loaded(
        model_name=location.name,
        model=model,
        store=KvStore(model.config, blocks=blocks, block_size=engine.block_size, dtype=dtype),
        fingerprint=fingerprint(
            model.config, weights_digest(location), dtype_name=dtype_name, block_size=engine.block_size
        ),
        dtype_name=dtype_name,
        blocks=blocks,
        block_size=engine.block_size,
        max_model_len=min(engine.max_model_len or longest, longest),
    )


@asynccontextmanager
async def assemble(config: NodeConfig, loaded: Loaded, record: NodeRecord, index: IndexEvents) -> AsyncIterator[Node]:
    """A running Node; its threads, memory registrations and channels end with the block."""
    async with AsyncExitStack() as stack:
        pool = BlockPool(loaded.blocks, on_stored=index.stored, on_removed=index.removed)
        scheduler = Scheduler(
            config.engine, pool, max_model_len=loaded.max_model_len, eos_token_ids=loaded.model.config.eos_token_ids
        )
        runner = ModelRunner(loaded.model, loaded.store, loaded.block_size)
        engine = Engine(scheduler, pool, runner, deliver_on(asyncio.get_running_loop()))
        transport = NixlTransport(
            record.epoch, loaded.store.kv_NLKBHD, loaded.store.block_bytes, lambda message: leases.on_notify(message)
        )
        stack.push_async_callback(transport.close)
        leases = LeaseKeeper(engine, config.lease_ttl_s, transport.set_serving)
        puller = _puller(config, loaded, record, transport)
        stack.push_async_callback(puller.close)
        engine.start()
        stack.callback(engine.stop)
        yield Node(
            config=config,
            record=record,
            limits=_limits(loaded),
            engine=engine,
            store=loaded.store,
            transport=transport,
            leases=leases,
            puller=puller,
        )


def _puller(config: NodeConfig, loaded: Loaded, record: NodeRecord, transport: NixlTransport) -> Puller:
    peers = PeerBook(
        transport,
        reader=common_pb2.NodeRef(name=record.name, epoch=record.epoch),
        fingerprint=loaded.fingerprint,
        block_bytes=loaded.store.block_bytes,
        renew_s=config.lease_renew_s,
    )
    return Puller(
        transport,
        peers,
        digest=loaded.store.digest,
        block_bytes=loaded.store.block_bytes,
        timeout_s=config.pull_timeout_s,
    )


def _limits(loaded: Loaded) -> Limits:
    return Limits(
        fingerprint=loaded.fingerprint,
        hash_seed=seed_hash(loaded.fingerprint),
        vocab_size=loaded.model.config.vocab_size,
        max_model_len=loaded.max_model_len,
        block_size=loaded.block_size,
        num_blocks=loaded.blocks,
    )
