"""Which physical blocks hold which content: hash to block ids.

Knows nothing of use or eviction. Two requests that computed the same prefix at once leave two copies of
a block; both are listed and the hash is gone when the last copy is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class PrefixIndex(Protocol):
    """What the block pool needs to find a prefix."""

    def insert(self, block_hash: bytes, block_id: int) -> bool:
        """Lists a copy; True if it is the first of its hash."""
        ...

    def remove(self, block_hash: bytes, block_id: int) -> bool:
        """Unlists a copy; True if it was the last of its hash. Raises KeyError if it is not listed."""
        ...

    def longest_prefix(self, hashes: Sequence[bytes]) -> list[int]:
        """Block ids of the longest run of leading `hashes` that are held."""
        ...

    def items(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Every hash with its copies, for integrity checks."""
        ...


class HashIndex:
    """PrefixIndex as one dictionary. Since hashes are chained, a held hash vouches for all before it."""

    def __init__(self) -> None:
        self._copies: dict[bytes, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def insert(self, block_hash: bytes, block_id: int) -> bool:
        copies = self._copies.setdefault(block_hash, {})
        copies[block_id] = None
        return len(copies) == 1

    def remove(self, block_hash: bytes, block_id: int) -> bool:
        copies = self._copies[block_hash]
        del copies[block_id]
        if copies:
            return False
        del self._copies[block_hash]
        return True

    def longest_prefix(self, hashes: Sequence[bytes]) -> list[int]:
        found: list[int] = []
        for block_hash in hashes:
            copies = self._copies.get(block_hash)
            if copies is None:
                break
            found.append(next(iter(copies)))
        return found

    def items(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        for block_hash, copies in self._copies.items():
            yield block_hash, tuple(copies)
