"""A digest of a set of hashes that follows each change in O(1): the XOR of its members.

Members are SHA-256 values, so an accidental match of two different sets is out of the question; it guards against lost
and repeated events, not against an attacker, who could write the set itself.
"""

from __future__ import annotations

from collections.abc import Iterable

EMPTY = bytes(32)


def toggled(digest: bytes, hashes: Iterable[bytes]) -> bytes:
    """`digest` after each of `hashes` (32 bytes) came or went."""
    value = int.from_bytes(digest)
    for block_hash in hashes:
        value ^= int.from_bytes(block_hash)
    return value.to_bytes(32)
