"""The block pool's books, example by example and under a random machine."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trunkline.cache.block_hash import hash_blocks, seed_hash
from trunkline.cache.block_pool import BlockPool, IntegrityError, NoFreeBlocks

SEED = seed_hash(b"test")


def chain(tag: int, blocks: int) -> list[bytes]:
    """Hashes of `blocks` blocks of size 1 whose tokens are all `tag`."""
    return hash_blocks([tag] * blocks, 1, SEED)


def fill(pool: BlockPool, hashes: list[bytes]) -> list[int]:
    ids = pool.allocate(len(hashes))
    for block_id, block_hash in zip(ids, hashes, strict=True):
        pool.commit(block_id, block_hash)
    return ids


def test_what_was_freed_is_found_until_it_is_reused():
    pool = BlockPool(4)
    hashes = chain(1, 3)
    ids = fill(pool, hashes)
    pool.free(ids)
    assert pool.find_longest_cache_hit(hashes) == ids
    pool.allocate(2)
    assert pool.find_longest_cache_hit(hashes) == ids[:2]


def test_tails_go_before_the_prefixes_they_extend():
    removed = []
    pool = BlockPool(6, on_removed=removed.extend)
    first, second = chain(1, 3), chain(2, 3)
    pool.free(fill(pool, first))
    pool.free(fill(pool, second))
    pool.allocate(6)
    assert removed == first[::-1] + second[::-1]


def test_a_hit_makes_a_chain_young_again():
    pool = BlockPool(6)
    first, second = chain(1, 3), chain(2, 3)
    pool.free(fill(pool, first))
    pool.free(fill(pool, second))
    hit = pool.find_longest_cache_hit(first)
    pool.share(hit)
    pool.free(hit)
    pool.allocate(3)
    assert len(pool.find_longest_cache_hit(first)) == 3
    assert pool.find_longest_cache_hit(second) == []


def test_blocks_without_content_are_reused_before_cached_ones():
    pool = BlockPool(4)
    hashes = chain(1, 2)
    pool.free(fill(pool, hashes))
    partial = pool.allocate(1)
    pool.free(partial)
    pool.allocate(2)
    assert len(pool.find_longest_cache_hit(hashes)) == 2


def test_referenced_and_leased_blocks_are_never_reused():
    pool = BlockPool(4)
    held, leased = fill(pool, chain(1, 1)), fill(pool, chain(2, 1))
    pool.lease(leased)
    pool.free(leased)
    assert (pool.num_referenced, pool.num_leased, pool.num_allocatable) == (1, 1, 2)
    given = pool.allocate(2)
    assert not set(given) & {*held, *leased}
    with pytest.raises(NoFreeBlocks):
        pool.allocate(1)
    pool.unlease(leased)
    assert pool.allocate(1) == leased
    pool.check_integrity()


def test_a_refused_allocation_changes_nothing():
    pool = BlockPool(3)
    hashes = chain(1, 2)
    pool.free(fill(pool, hashes))
    with pytest.raises(NoFreeBlocks):
        pool.allocate(4)
    assert len(pool.find_longest_cache_hit(hashes)) == 2
    pool.check_integrity()


def test_a_generation_grows_with_each_new_content():
    pool = BlockPool(1)
    seen = []
    for _ in range(3):
        (block,) = pool.allocate(1)
        seen.append(pool.generation(block))
        pool.free([block])
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("give_up", ["free", "unlease"])
def test_giving_up_twice_is_refused_and_changes_nothing(give_up):
    pool = BlockPool(3)
    ids = fill(pool, chain(1, 2))
    pool.lease(ids)
    getattr(pool, give_up)(ids)
    with pytest.raises(IntegrityError):
        getattr(pool, give_up)(ids)
    with pytest.raises(IntegrityError):
        pool.free([ids[0], ids[0]])
    pool.check_integrity()


def test_two_copies_are_announced_once_and_removed_once():
    stored, removed = [], []
    pool = BlockPool(2, on_stored=stored.extend, on_removed=removed.extend)
    hashes = chain(1, 1)
    one, two = fill(pool, hashes), fill(pool, hashes)
    pool.free(one)
    pool.free(two)
    assert stored == hashes
    pool.allocate(1)
    assert removed == []
    pool.allocate(1)
    assert removed == hashes


def test_looking_up_holds_nothing():
    pool = BlockPool(4)
    hashes = chain(1, 3)
    pool.free(fill(pool, hashes))
    for _ in range(10_000):
        pool.find_longest_cache_hit(hashes)
    assert pool.num_allocatable == 4
    pool.check_integrity()


class PoolMachine(RuleBasedStateMachine):
    """Requests and leases come and go on a small pool; all books are recounted after every step."""

    def __init__(self):
        super().__init__()
        self.held: set[bytes] = set()
        self.pool = BlockPool(12, on_stored=self.store, on_removed=self.remove)
        self.tables: list[list[int]] = []
        self.leases: list[list[int]] = []

    def store(self, hashes):
        assert not self.held & set(hashes)
        self.held |= set(hashes)

    def remove(self, hashes):
        assert self.held >= set(hashes)
        self.held -= set(hashes)

    @rule(tag=st.integers(0, 3), blocks=st.integers(1, 6), partial=st.booleans())
    def admit(self, tag, blocks, partial):
        hashes = chain(tag, blocks)
        hit = self.pool.find_longest_cache_hit(hashes)
        self.pool.share(hit)
        try:
            new = self.pool.allocate(blocks - len(hit) + partial)
        except NoFreeBlocks:
            self.pool.free(hit)
            return
        for block_id, block_hash in zip(new, hashes[len(hit) :], strict=False):
            self.pool.commit(block_id, block_hash)
        self.tables.append(hit + new)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def finish(self, data):
        self.pool.free(self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1))))

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), hand_over=st.booleans())
    def lease(self, data, hand_over):
        i = data.draw(st.integers(0, len(self.tables) - 1))
        self.pool.lease(self.tables[i])
        self.leases.append(self.tables[i])
        if hand_over:
            self.pool.free(self.tables.pop(i))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data):
        self.pool.unlease(self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1))))

    @invariant()
    def books_agree(self):
        self.pool.check_integrity()
        used = {b for table in self.tables for b in table}
        leased = {b for lease in self.leases for b in lease}
        assert self.pool.num_referenced == len(used)
        assert self.pool.num_leased == len(leased - used)

    @invariant()
    def what_is_held_is_prefix_closed(self):
        for tag in range(4):
            known = [h in self.held for h in chain(tag, 6)]
            assert known == sorted(known, reverse=True)
            assert len(self.pool.find_longest_cache_hit(chain(tag, 6))) == sum(known)

    def teardown(self):
        for table in self.tables:
            self.pool.free(table)
        for lease in self.leases:
            self.pool.unlease(lease)
        self.pool.check_integrity()
        assert self.pool.num_allocatable == self.pool.num_blocks


PoolMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestPoolMachine = PoolMachine.TestCase
