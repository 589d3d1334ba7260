"""Block hashes (encoding TLB1): the name of a full block and everything before it.

Knows the byte encoding and nothing else. Security rests on SHA-256: a hash stands for identity across
tenants and machines, so all 32 bytes are kept and nothing of this process (hash seed, locale) enters it.

    seed   = SHA256("TLSEED1" || u32le(len(fingerprint)) || fingerprint)
    hash_i = SHA256("TLB1" || hash_{i-1} || u32le(n) || n * u32le token || u32le(keys) || keys)
    key    = u8 kind || u32le(len) || bytes
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from enum import IntEnum
from hashlib import sha256

HASH_BYTES = 32

ExtraKeys = Mapping[int, Sequence[tuple[int, bytes]]]

_NO_KEYS = struct.pack("<I", 0)


class ExtraKeyKind(IntEnum):
    """What an extra key is. The tag keeps a salt from ever meaning an adapter of the same name."""

    CACHE_SALT = 1
    LORA = 2
    MULTIMODAL = 3
    PROMPT_EMBEDS = 4


def seed_hash(fingerprint: bytes) -> bytes:
    """The chain's start for one kind of KV (32 bytes): other model, revision or layout, other hashes."""
    return sha256(b"TLSEED1" + struct.pack("<I", len(fingerprint)) + fingerprint).digest()


def hash_blocks(
    token_ids: Sequence[int], block_size: int, seed: bytes, extra_keys: ExtraKeys | None = None
) -> list[bytes]:
    """The hash (32 bytes) of each full block of `token_ids`, in order; a partial last block has none.

    `seed` is seed_hash(), or the hash of the block before the first one given here. `extra_keys` maps a block's
    index to its (kind, bytes) pairs, in order. Raises OverflowError for a token id outside 0 .. 2**32-1.
    """
    tokens = _u32le(token_ids)
    head = struct.pack("<I", block_size)
    step = 4 * block_size
    keys = {i: _encode_keys(pairs) for i, pairs in (extra_keys or {}).items()}
    hashes: list[bytes] = []
    previous = seed
    for i in range(len(token_ids) // block_size):
        content = b"TLB1" + previous + head + tokens[i * step : (i + 1) * step] + keys.get(i, _NO_KEYS)
        previous = sha256(content).digest()
        hashes.append(previous)
    return hashes


def _u32le(token_ids: Sequence[int]) -> bytes:
    packed = array("I", token_ids)
    if packed.itemsize != 4:  # pragma: no cover - no such platform in use
        return struct.pack(f"<{len(token_ids)}I", *token_ids)
    if sys.byteorder == "big":  # pragma: no cover
        packed.byteswap()
    return packed.tobytes()


def _encode_keys(pairs: Sequence[tuple[int, bytes]]) -> bytes:
    parts = [struct.pack("<I", len(pairs))]
    parts += [struct.pack("<BI", kind, len(value)) + value for kind, value in pairs]
    return b"".join(parts)
