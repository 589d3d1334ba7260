"""Block hashing and block pool, in operations per second: python bench/cache.py"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from trunkline.cache.block_hash import hash_blocks, seed_hash
from trunkline.cache.block_pool import BlockPool

TOKENS = 16_384
BLOCKS = 10_000


def rate(work: Callable[[], int], runs: int = 5) -> float:
    """Median units per second of `work`, which returns how many units it did."""
    rates = []
    for _ in range(runs):
        started = time.perf_counter()
        units = work()
        rates.append(units / (time.perf_counter() - started))
    return statistics.median(rates)


def hashing() -> int:
    hash_blocks(_TOKENS, 16, _SEED)
    return TOKENS


def allocate_and_free() -> int:
    pool = BlockPool(BLOCKS)
    pool.free(pool.allocate(BLOCKS))
    return BLOCKS


def lookup() -> int:
    pool = BlockPool(TOKENS // 16)
    for block_id, block_hash in zip(pool.allocate(len(_HASHES)), _HASHES, strict=True):
        pool.commit(block_id, block_hash)
    return sum(len(pool.find_longest_cache_hit(_HASHES)) for _ in range(10))


_TOKENS = [random.Random(0).randrange(50_000) for _ in range(TOKENS)]
_SEED = seed_hash(b"bench")
_HASHES = hash_blocks(_TOKENS, 16, _SEED)

if __name__ == "__main__":
    for name, work, unit in (
        ("hashing", hashing, "tokens/s"),
        ("allocate and free", allocate_and_free, "blocks/s"),
        ("insert, then look up ten times", lookup, "blocks/s"),
    ):
        print(f"{name:32} {rate(work):14,.0f} {unit}")
