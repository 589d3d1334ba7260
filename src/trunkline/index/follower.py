"""A router's ear on the global index: which nodes live, how they are, and what each holds.

Starts from the registry and the nodes' sets, then follows all streams with one blocking read. A gap, a digest that
differs or a new life makes it read that node's set again, and only that. While Redis is away it goes on with what
it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redis.exceptions import RedisError

from trunkline.errors import Unavailable
from trunkline.index.connection import connect
from trunkline.index.publisher import delete_node
from trunkline.index.records import (
    NODES_STREAM,
    REGISTRY,
    NodeLoad,
    NodeRecord,
    live_key,
    parse_load,
    parse_record,
)
from trunkline.index.replica import Replica

log = logging.getLogger(__name__)

BLOCK_MS = 500
READ_COUNT = 256
RETRY_S = 0.2

Fields = Mapping[bytes, bytes]


@dataclass
class NodeView:
    """A live node as last heard of."""

    record: NodeRecord
    load: NodeLoad | None
    #: time.monotonic() of its last sign of life.
    last_seen: float
    #: Last entry of its stream that was read.
    last_id: bytes
    #: A call to it failed after its last heartbeat: not to be used until the next one.
    suspect: bool = False


class IndexFollower:
    """One event loop owns it. `nodes` (by epoch) and `replica` are always consistent with each other."""

    def __init__(self, redis_url: str, *, dead_after_s: float = 3.0) -> None:
        self._redis = connect(redis_url)
        self._dead_after_s = dead_after_s
        self._task: asyncio.Task[None] | None = None
        self._nodes_id = b"0"
        self._changed = asyncio.Condition()
        self.nodes: dict[str, NodeView] = {}
        self.replica = Replica()
        self._stopping = False
        self.healthy = False
        #: How often a node's set had to be read again, and entries that could not be understood.
        self.resyncs = 0
        self.ignored = 0

    async def start(self) -> None:
        """Loads everything once and begins to follow. Raises Unavailable when Redis does not answer."""
        try:
            await self._reload()
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis does not answer: {error}") from error
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        # A flag beside the cancellation: a client that is interrupted may report that as a lost connection.
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._redis.aclose()

    def suspect(self, epoch: str) -> None:
        """A call to the node failed: nothing is sent there until it is heard of again."""
        if epoch in self.nodes:
            self.nodes[epoch].suspect = True

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Until `predicate` holds after some change; False when `timeout_s` ended first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(predicate)
        return predicate()

    # -- following

    async def _follow(self) -> None:
        while not self._stopping:
            try:
                if not self.healthy:
                    await self._reload()
                await self._read_once()
                await self._bury_the_silent()
            except (RedisError, OSError) as error:
                if self.healthy:
                    log.warning("Redis is away, routing goes on with what is known: %s", error)
                self.healthy = False
                await asyncio.sleep(RETRY_S)
            await self._notify()

    async def _read_once(self) -> None:
        positions = {NODES_STREAM: self._nodes_id}
        by_key = {view.record.events_key.encode(): view for view in self.nodes.values()}
        positions |= {view.record.events_key: view.last_id for view in self.nodes.values()}
        for key, entries in await self._redis.xread(positions, count=READ_COUNT, block=BLOCK_MS) or []:
            if key in by_key:
                await self._take_events(by_key[key], entries)
            else:
                self._nodes_id = entries[-1][0]
                await self._refresh_registry()

    async def _take_events(self, view: NodeView, entries: list[tuple[bytes, Fields]]) -> None:
        for entry_id, fields in entries:
            view.last_id = entry_id
            if view.record.epoch not in self.nodes:
                return
            if not self._take_event(view, fields):
                await self._resync(view)
                return

    def _take_event(self, view: NodeView, fields: Fields) -> bool:
        """False when the node's set has to be read again."""
        epoch = view.record.epoch
        try:
            number = int(fields[b"n"])
            if b"load" not in fields:
                return self.replica.apply(epoch, number, _split(fields[b"s"]), _split(fields[b"r"]))
        except (KeyError, ValueError):
            self.ignored += 1
            return True
        view.last_seen = time.monotonic()
        view.suspect = False
        view.load = parse_load(fields[b"load"]) or view.load
        ours = self.replica.sequence(epoch)
        behind = ours is None or ours < number
        return not behind and self.replica.agrees(epoch, number, fields.get(b"d", b""))

    # -- loading

    async def _reload(self) -> None:
        """Everything again, as after a start. Silence while Redis was away is not held against a node."""
        last = await self._redis.xrevrange(NODES_STREAM, count=1)
        self._nodes_id = last[0][0] if last else b"0"
        await self._refresh_registry()
        for view in list(self.nodes.values()):
            view.last_seen = time.monotonic()
            await self._resync(view)
        self.healthy = True

    async def _refresh_registry(self) -> None:
        records = await self._live_records()
        for epoch in list(self.nodes):
            if epoch not in records:
                self._drop(epoch)
        for epoch, record in records.items():
            if epoch not in self.nodes:
                view = NodeView(record=record, load=None, last_seen=time.monotonic(), last_id=b"0")
                self.nodes[epoch] = view
                await self._resync(view)

    async def _live_records(self) -> dict[str, NodeRecord]:
        """Registered nodes whose liveness key stands, the latest life of each name."""
        raw = await self._redis.hgetall(REGISTRY)
        parsed = [parse_record(value, key.decode(errors="replace")) for key, value in raw.items()]
        records = [record for record in parsed if record is not None]
        self.ignored += len(parsed) - len(records)
        if not records:
            return {}
        alive = await self._redis.mget([live_key(record.epoch) for record in records])
        latest: dict[str, NodeRecord] = {}
        for record, live in sorted(zip(records, alive, strict=True), key=lambda pair: pair[0].started_at):
            if live is not None:
                latest[record.name] = record
            else:
                await delete_node(self._redis, record, announce=False)
        return {record.epoch: record for record in latest.values()}

    async def _resync(self, view: NodeView) -> None:
        record = view.record
        self.resyncs += 1
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.get(record.sequence_key)
            pipe.smembers(record.held_key)
            pipe.xrevrange(record.events_key, count=1)
            sequence, held, last = await pipe.execute(raise_on_error=False)
        if isinstance(sequence, Exception) or isinstance(held, Exception) or isinstance(last, Exception):
            self.ignored += 1  # a key of another type: nothing of ours
            self._drop(record.epoch)
            return
        number = int(sequence) if sequence and sequence.isdigit() else 0
        self.replica.load_snapshot(record.epoch, number, held)
        if last:
            view.last_id = last[0][0]
            view.load = parse_load(last[0][1].get(b"load", b"")) or view.load

    async def _bury_the_silent(self) -> None:
        now = time.monotonic()
        for epoch, view in list(self.nodes.items()):
            if now - view.last_seen > self._dead_after_s:
                log.warning("node %s has gone silent", view.record.name)
                self._drop(epoch)
                if not await self._redis.exists(live_key(epoch)):
                    await delete_node(self._redis, view.record, announce=False)

    def _drop(self, epoch: str) -> None:
        self.nodes.pop(epoch, None)
        self.replica.drop(epoch)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _split(joined: bytes) -> list[bytes]:
    """Hashes of 32 bytes, as they were joined."""
    return [joined[i : i + 32] for i in range(0, len(joined), 32)]
