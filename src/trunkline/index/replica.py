"""A router's copy of the global index: who holds which block. Pure books, no I/O, no clock.

Per owner, what is held is prefix-closed, so an owner's longest prefix is where its membership first ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trunkline.cache.block_hash import HASH_BYTES
from trunkline.cache.block_pool import IntegrityError
from trunkline.index.digest import EMPTY, toggled


@dataclass
class _Owner:
    sequence: int
    held: set[bytes] = field(default_factory=set)
    digest: bytes = EMPTY


class Replica:
    """Every owner's hashes, by epoch. One thread."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}

    @property
    def entries(self) -> int:
        """Block-owner pairs."""
        return sum(len(owner.held) for owner in self._owners.values())

    @property
    def owners(self) -> list[str]:
        return list(self._owners)

    def held(self, epoch: str) -> frozenset[bytes]:
        owner = self._owners.get(epoch)
        return frozenset(owner.held) if owner else frozenset()

    def sequence(self, epoch: str) -> int | None:
        """Number of the last batch applied, None for an owner that is not known."""
        owner = self._owners.get(epoch)
        return owner.sequence if owner else None

    def load_snapshot(self, epoch: str, sequence: int, hashes: Iterable[bytes]) -> None:
        """Replaces all that is known of `epoch`. What is not a hash is left out."""
        held = {h for h in hashes if len(h) == HASH_BYTES}
        self._owners[epoch] = _Owner(sequence, held, toggled(EMPTY, held))

    def apply(self, epoch: str, sequence: int, stored: Iterable[bytes], removed: Iterable[bytes]) -> bool:
        """Applies batch `sequence`.

        A repeat changes nothing. False, and nothing changed, when batches before it are missing.
        """
        owner = self._owners.get(epoch)
        if owner is None or sequence > owner.sequence + 1:
            return False
        if sequence <= owner.sequence:
            return True
        # In a batch a hash is in one list only, its last state (see IndexPublisher).
        gone = [h for h in removed if h in owner.held]
        owner.held.difference_update(gone)
        come = [h for h in dict.fromkeys(stored) if h not in owner.held and len(h) == HASH_BYTES]
        owner.held.update(come)
        owner.digest = toggled(toggled(owner.digest, gone), come)
        owner.sequence = sequence
        return True

    def agrees(self, epoch: str, sequence: int, digest: bytes) -> bool:
        """False when the owner's digest at the same number differs from ours. At another number nothing can be said."""
        owner = self._owners.get(epoch)
        return owner is None or owner.sequence != sequence or owner.digest == digest

    def drop(self, epoch: str) -> None:
        """Forgets an owner and all it held. O(1) for the others."""
        self._owners.pop(epoch, None)

    def longest_prefixes(self, hashes: Sequence[bytes]) -> dict[str, int]:
        """For every owner that holds any, how many leading `hashes` it holds: O(log n) probes each."""
        found: dict[str, int] = {}
        for epoch, owner in self._owners.items():
            length = _longest(owner.held, hashes)
            if length:
                found[epoch] = length
        return found

    def check_integrity(self) -> None:
        for epoch, owner in self._owners.items():
            if toggled(EMPTY, owner.held) != owner.digest:
                raise IntegrityError(f"the digest of {epoch} differs from its hashes")


def _longest(held: set[bytes], hashes: Sequence[bytes]) -> int:
    low, high = 0, len(hashes)
    if not high or hashes[0] not in held:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if hashes[middle - 1] in held:
            low = middle
        else:
            high = middle - 1
    return low
