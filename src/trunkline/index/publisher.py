"""A node's voice in the global index: its record, its liveness, and what it holds.

Changes are gathered and written as numbered batches, each one atomically to the node's set, its number and its
stream. While Redis is away changes are kept (as the set that they lead to); when it is back, or was flushed,
everything is written anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from trunkline.errors import Unavailable
from trunkline.index.connection import connect
from trunkline.index.digest import EMPTY, toggled
from trunkline.index.records import (
    NODES_STREAM,
    NODES_STREAM_LENGTH,
    REGISTRY,
    STREAM_LENGTH,
    NodeLoad,
    NodeRecord,
)

log = logging.getLogger(__name__)

#: Batches go out at most this often: a step's many blocks make one.
FLUSH_S = 0.02
RETRY_S = 0.2
ADD_MANY = 5_000

# KEYS: held, sequence, events. ARGV: expected previous number, new number, stream length, stored (joined), removed
# (joined). Returns 0, changing nothing, when the number kept in Redis is not the previous one: it was flushed or is
# another Redis.
_APPLY = """
local known = tonumber(redis.call('GET', KEYS[2]) or '0')
if known ~= tonumber(ARGV[1]) then return 0 end
local function each(command, joined)
  for i = 1, #joined, 32 do redis.call(command, KEYS[1], string.sub(joined, i, i + 31)) end
end
each('SREM', ARGV[5])
each('SADD', ARGV[4])
redis.call('SET', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[3], '*', 'n', ARGV[2], 's', ARGV[4], 'r', ARGV[5])
return 1
"""


class IndexPublisher:
    """stored() and removed() may be called on any thread; the rest belongs to one event loop."""

    def __init__(
        self,
        redis_url: str,
        record: NodeRecord,
        load: Callable[[], NodeLoad],
        *,
        heartbeat_s: float = 1.0,
        live_ttl_s: float = 3.0,
    ) -> None:
        self._redis = connect(redis_url)
        self._apply = self._redis.register_script(_APPLY)
        self._record = record
        self._load = load
        self._heartbeat_s = heartbeat_s
        self._live_ttl_ms = int(live_ttl_s * 1e3)
        self._lock = threading.Lock()
        #: Changes since the last batch: the last word on each hash.
        self._changes: dict[bytes, bool] = {}
        #: What this node holds, all batches and changes included.
        self._held: set[bytes] = set()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: asyncio.Task[None] | None = None
        self._next_beat = 0.0
        self._sequence = 0
        self._digest = EMPTY
        #: What the set in Redis holds at self._sequence.
        self._written: set[bytes] = set()
        self._rewrite = True
        self._stopping = False
        self.healthy = False

    # -- any thread

    def stored(self, hashes: Sequence[bytes]) -> None:
        """The first copy of each hash is held now."""
        self._change(hashes, True)

    def removed(self, hashes: Sequence[bytes]) -> None:
        """The last copy of each hash is gone."""
        self._change(hashes, False)

    def _change(self, hashes: Sequence[bytes], held: bool) -> None:
        with self._lock:
            (self._held.update if held else self._held.difference_update)(hashes)
            for block_hash in hashes:
                self._changes[block_hash] = held
        if self._loop is not None and not self._wake.is_set():
            self._loop.call_soon_threadsafe(self._wake.set)

    # -- the event loop

    async def start(self) -> None:
        """Registers the node. Raises Unavailable when Redis does not answer."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._write_everything()
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis does not answer: {error}") from error
        self._writer = asyncio.create_task(self._write_forever())

    async def stop(self) -> None:
        """Leaves the index: the node's keys are deleted, in time that depends on them alone."""
        # A flag beside the cancellation: a client that is interrupted may report that as a lost connection.
        self._stopping = True
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
        try:
            await delete_node(self._redis, self._record)
        except RedisError as error:
            log.warning("could not leave the index, its keys will expire: %s", error)
        await self._redis.aclose()

    def beat_now(self) -> None:
        """Tells the load at once, for a node that begins to drain."""
        self._next_beat = 0.0
        self._wake.set()

    async def _write_forever(self) -> None:
        """One writer, so that batches and heartbeats never overtake each other."""
        self._next_beat = time.monotonic() + self._heartbeat_s
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, self._next_beat - time.monotonic()))
            self._wake.clear()
            if time.monotonic() >= self._next_beat:
                await self._guarded(self._beat)
                self._next_beat = time.monotonic() + (self._heartbeat_s if self.healthy else RETRY_S)
            if self.healthy:
                await self._guarded(self._flush)
            await asyncio.sleep(FLUSH_S)

    async def _guarded(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
            if not self.healthy:
                log.info("the index is written again")
            self.healthy = True
        except (RedisError, OSError) as error:
            if self.healthy:
                log.warning("Redis is away, changes are kept: %s", error)
            self.healthy = False
            self._rewrite = True

    async def _flush(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, {}
        if changes:
            await self._write_batch(changes)

    async def _write_batch(self, changes: dict[bytes, bool]) -> None:
        stored = [h for h, held in changes.items() if held]
        removed = [h for h, held in changes.items() if not held]
        keys = [self._record.held_key, self._record.sequence_key, self._record.events_key]
        args = [self._sequence, self._sequence + 1, STREAM_LENGTH, b"".join(stored), b"".join(removed)]
        if not await self._apply(keys=keys, args=args):
            self._rewrite = True
            await self._write_everything()
            return
        self._sequence += 1
        self._digest = self._digest_of_written(changes)

    def _digest_of_written(self, changes: dict[bytes, bool]) -> bytes:
        changed = [h for h, held in changes.items() if (h in self._written) != held]
        for block_hash in changed:
            (self._written.add if changes[block_hash] else self._written.discard)(block_hash)
        return toggled(self._digest, changed)

    async def _beat(self) -> None:
        """Liveness, load, and what the set should look like at this number. Notices a Redis that forgot us."""
        if self._rewrite:
            await self._write_everything()
        fields = {"n": self._sequence, "d": self._digest, "load": self._load().model_dump_json()}
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.get(self._record.sequence_key)
            pipe.hexists(REGISTRY, self._record.epoch)
            pipe.set(self._record.live_key, self._record.name, px=self._live_ttl_ms)
            pipe.xadd(self._record.events_key, fields, maxlen=STREAM_LENGTH, approximate=True)
            known, registered, _, _ = await pipe.execute()
        if known != str(self._sequence).encode() or not registered:
            self._rewrite = True
            await self._write_everything()

    async def _write_everything(self) -> None:
        """The record and the whole set, under the next number, and the news that this node is here."""
        with self._lock:
            self._changes = {}
            held = set(self._held)
        record = self._record
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(record.held_key, record.events_key)
            ordered = list(held)
            for i in range(0, len(ordered), ADD_MANY):
                pipe.sadd(record.held_key, *ordered[i : i + ADD_MANY])
            pipe.set(record.sequence_key, self._sequence + 1)
            pipe.set(record.live_key, record.name, px=self._live_ttl_ms)
            pipe.hset(REGISTRY, record.epoch, record.model_dump_json())
            beat = {"n": self._sequence + 1, "d": toggled(EMPTY, held), "load": self._load().model_dump_json()}
            pipe.xadd(record.events_key, beat)
            pipe.xadd(NODES_STREAM, {"epoch": record.epoch}, maxlen=NODES_STREAM_LENGTH, approximate=True)
            await pipe.execute()
        self._sequence += 1
        self._written = held
        self._digest = toggled(EMPTY, held)
        self._rewrite = False
        self.healthy = True


async def delete_node(client: Any, record: NodeRecord, *, announce: bool = True) -> None:
    """Removes one epoch's keys and says so. UNLINK frees a large set in the background."""
    async with client.pipeline(transaction=True) as pipe:
        pipe.unlink(record.held_key, record.events_key, record.sequence_key, record.live_key)
        pipe.hdel(REGISTRY, record.epoch)
        if announce:
            pipe.xadd(NODES_STREAM, {"epoch": record.epoch}, maxlen=NODES_STREAM_LENGTH, approximate=True)
        await pipe.execute()
