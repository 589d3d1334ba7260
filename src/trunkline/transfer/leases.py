"""The leases that one node has given: which blocks, until when.

Pure books: time is an argument, blocks are held through two callbacks. Not thread-safe: the caller holds the
engine's lock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trunkline.cache.block_pool import IntegrityError


@dataclass
class _Lease:
    block_ids: list[int]
    expires_at: float


class LeaseTable:
    """A lease ends by release() or by its time, whichever comes first, and gives its blocks back just once."""

    def __init__(
        self, ttl_s: float, on_lease: Callable[[list[int]], None], on_unlease: Callable[[list[int]], None]
    ) -> None:
        """`on_lease` and `on_unlease` get a lease's blocks in table order, as BlockPool.lease and unlease want."""
        self._ttl_s = ttl_s
        self._on_lease = on_lease
        self._on_unlease = on_unlease
        self._leases: dict[str, _Lease] = {}
        # (expiry, id), one entry a lease; an entry may lag behind a renewal and is then put back.
        self._queue: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, lease_id: str) -> bool:
        return lease_id in self._leases

    @property
    def lease_ids(self) -> list[str]:
        return list(self._leases)

    @property
    def next_expiry(self) -> float | None:
        """No lease ends of itself before this time; None when there is none."""
        while self._queue and self._queue[0][1] not in self._leases:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def grant(self, lease_id: str, block_ids: Sequence[int], now: float) -> None:
        """A new lease on blocks that the caller holds. Raises IntegrityError for an id in use."""
        if lease_id in self._leases:
            raise IntegrityError(f"lease {lease_id} granted twice")
        self._on_lease(list(block_ids))
        self._leases[lease_id] = _Lease(list(block_ids), now + self._ttl_s)
        heapq.heappush(self._queue, (now + self._ttl_s, lease_id))

    def renew(self, lease_ids: Sequence[str], now: float) -> list[str]:
        """Another term from `now`; returns the ids that are over or never were."""
        unknown = []
        for lease_id in lease_ids:
            lease = self._leases.get(lease_id)
            if lease is None or lease.expires_at <= now:
                unknown.append(lease_id)
            else:
                lease.expires_at = now + self._ttl_s
        return unknown

    def release(self, lease_id: str) -> None:
        """Ends a lease. Again, or for one never given: nothing."""
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._on_unlease(lease.block_ids)

    def expire(self, now: float) -> list[str]:
        """Ends every lease whose time is over; returns their ids."""
        expired = []
        while self._queue and self._queue[0][0] <= now:
            _, lease_id = heapq.heappop(self._queue)
            lease = self._leases.get(lease_id)
            if lease is None:
                continue
            if lease.expires_at > now:
                heapq.heappush(self._queue, (lease.expires_at, lease_id))
                continue
            self.release(lease_id)
            expired.append(lease_id)
        return expired

    def check_integrity(self) -> None:
        """Every lease will be looked at when its time comes. Raises IntegrityError."""
        queued = [lease_id for _, lease_id in self._queue]
        if not set(self._leases) <= set(queued) or len(queued) != len(set(queued)):
            raise IntegrityError("leases and their expiry queue differ")
