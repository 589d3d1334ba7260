"""The leases of a node, kept in time: the LeaseTable's books joined to the engine's lock, a clock and the transport.

Owns when leases end and whether the transport must serve. The table itself knows no clock and no lock.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence

from trunkline.engine.engine import Engine
from trunkline.transfer.leases import LeaseTable
from trunkline.transfer.wire import parse_notification

log = logging.getLogger(__name__)


class LeaseKeeper:
    """All methods on the event loop's thread, except on_notify()."""

    def __init__(self, engine: Engine, ttl_s: float, set_serving: Callable[[bool], None]) -> None:
        """`set_serving` is told whether any lease is out, each time that changes."""
        self._engine = engine
        self._set_serving = set_serving
        self._serving = False
        self._table = LeaseTable(ttl_s, engine.pool.lease, engine.pool.unlease)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.ttl_s = ttl_s

    def __len__(self) -> int:
        return len(self._table)

    def grant(self, block_ids: Sequence[int]) -> str:
        """Leases blocks (in table order) that the caller holds; returns the lease's id."""
        lease_id = uuid.uuid4().hex
        with self._engine.books():
            self._table.grant(lease_id, list(block_ids), time.monotonic())
        self._update()
        return lease_id

    def lease_prefix(self, hashes: Sequence[bytes]) -> tuple[str, list[int]] | None:
        """Finds and leases the longest held run of leading `hashes` in one go; None when nothing is held."""
        lease_id = uuid.uuid4().hex
        with self._engine.books():
            block_ids = self._engine.pool.find_longest_cache_hit(hashes)
            if not block_ids:
                return None
            self._table.grant(lease_id, block_ids, time.monotonic())
        self._update()
        return lease_id, block_ids

    def renew(self, lease_ids: Sequence[str]) -> list[str]:
        """Another term for each; returns those that are over."""
        with self._engine.books():
            unknown = self._table.renew(list(lease_ids), time.monotonic())
        self._update()
        return list(unknown)

    def release(self, lease_id: str) -> None:
        """Ends a lease; one that is over already is no error."""
        with self._engine.books():
            self._table.release(lease_id)
        self._update()

    def on_notify(self, message: bytes) -> None:
        """A reader's notification, on the transport's thread. What cannot be read is ignored: leases end anyway."""
        done = parse_notification(message)
        if done is not None:
            self._loop.call_soon_threadsafe(self.release, done.lease_id)

    def release_all(self) -> None:
        with self._engine.books():
            for lease_id in self._table.lease_ids:
                self._table.release(lease_id)
        self._update()

    def check_integrity(self) -> None:
        """Raises IntegrityError when the table and its lookups disagree."""
        with self._engine.books():
            self._table.check_integrity()

    def _update(self) -> None:
        serving = len(self._table) > 0
        if serving != self._serving:
            self._serving = serving
            self._set_serving(serving)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_expiry = self._table.next_expiry
        if next_expiry is not None:
            self._timer = self._loop.call_later(max(0.0, next_expiry - time.monotonic()), self._expire)

    def _expire(self) -> None:
        with self._engine.books():
            expired = self._table.expire(time.monotonic())
        if expired:
            log.warning("%d leases expired unreleased: their readers went silent", len(expired))
        self._update()
