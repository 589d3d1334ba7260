"""The block pool: who uses each physical block of a node, and what it holds.

Knows block ids, reference counts, leases, generations and hashes. Refuses to know tensors, sockets, time and requests.

A block is in exactly one of four states, and their counts sum to the pool:

    free        nobody uses it and it holds nothing of use
    cached      nobody uses it; its content can be hit until the block is reused
    referenced  a request or a pull in flight uses it
    leased      only peers' leases hold it

Not thread-safe: the caller holds the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trunkline.cache.free_queue import Block, FreeQueue
from trunkline.cache.prefix_index import HashIndex, PrefixIndex


class NoFreeBlocks(Exception):
    """The pool cannot give that many blocks now."""


class IntegrityError(Exception):
    """Two books of the same thing disagree: a fault of ours."""


class BlockPool:
    """`num_blocks` blocks with ids 0 .. num_blocks-1.

    `on_stored` and `on_removed` are told, in order, when the first copy of a hash comes and the last one goes.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        index: PrefixIndex | None = None,
        on_stored: Callable[[Sequence[bytes]], None] = lambda hashes: None,
        on_removed: Callable[[Sequence[bytes]], None] = lambda hashes: None,
    ) -> None:
        self._blocks = [Block(i) for i in range(num_blocks)]
        self._queue = FreeQueue()
        for block in self._blocks:
            self._queue.push_back(block)
        self._index: PrefixIndex = index if index is not None else HashIndex()
        self._on_stored = on_stored
        self._on_removed = on_removed
        self._num_cached = 0
        self._num_leased = 0

    # -- counts, all O(1)

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def num_allocatable(self) -> int:
        """Blocks that allocate() could give now: free and cached ones."""
        return len(self._queue)

    @property
    def num_cached(self) -> int:
        return self._num_cached

    @property
    def num_free(self) -> int:
        return len(self._queue) - self._num_cached

    @property
    def num_leased(self) -> int:
        return self._num_leased

    @property
    def num_referenced(self) -> int:
        return len(self._blocks) - len(self._queue) - self._num_leased

    # -- lookup

    def find_longest_cache_hit(self, hashes: Sequence[bytes]) -> list[int]:
        """Ids of the blocks that hold the longest run of leading `hashes`.

        Valid until the next allocate(): share() them before anything else is allocated.
        """
        return self._index.longest_prefix(hashes)

    def generation(self, block_id: int) -> int:
        return self._blocks[block_id].generation

    def hash_of(self, block_id: int) -> bytes | None:
        return self._blocks[block_id].hash

    # -- use

    def allocate(self, count: int) -> list[int]:
        """Takes `count` blocks for new content, each with one reference and a new generation.

        The longest idle ones go first and lose what they held. All or nothing: raises NoFreeBlocks and changes
        nothing when fewer are idle.
        """
        if count > len(self._queue):
            raise NoFreeBlocks(f"{count} blocks wanted, {len(self._queue)} idle of {len(self._blocks)}")
        taken = [self._queue.pop_front() for _ in range(count)]
        self._forget(taken)
        for block in taken:
            block.refs = 1
            block.generation += 1
        return [block.id for block in taken]

    def share(self, block_ids: Iterable[int]) -> None:
        """One more reference on each block, idle or not."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            self._leave_idle_or_leased(block)
            block.refs += 1

    def free(self, block_ids: Sequence[int]) -> None:
        """Gives up one reference on each block, of one request in table order.

        Tails become idle before their prefixes, so they are reused first and what is held stays prefix-closed. Raises
        IntegrityError, changing nothing, for a block without references.
        """
        self._check_counts(block_ids, "refs")
        for block_id in reversed(block_ids):
            block = self._blocks[block_id]
            block.refs -= 1
            if block.refs == 0 and block.leases:
                self._num_leased += 1
            self._enter_idle(block)

    def lease(self, block_ids: Iterable[int]) -> None:
        """One more lease on each block, which must be referenced or hold content."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.idle:
                self._leave_idle_or_leased(block)
                self._num_leased += 1
            block.leases += 1

    def unlease(self, block_ids: Sequence[int]) -> None:
        """Ends one lease on each block, in table order; as free() does. Raises IntegrityError for an unleased block."""
        self._check_counts(block_ids, "leases")
        for block_id in reversed(block_ids):
            block = self._blocks[block_id]
            block.leases -= 1
            if block.leases == 0 and block.refs == 0:
                self._num_leased -= 1
            self._enter_idle(block)

    def commit(self, block_id: int, block_hash: bytes) -> None:
        """Names the content of a referenced block that is full and verified; from now on it can be hit."""
        block = self._blocks[block_id]
        if block.refs == 0:
            raise IntegrityError(f"block {block_id} committed without a reference")
        if block.hash == block_hash:
            return
        if block.hash is not None:
            raise IntegrityError(f"block {block_id} committed twice with different content")
        block.hash = block_hash
        if self._index.insert(block_hash, block_id):
            self._on_stored([block_hash])

    # -- inside

    def _leave_idle_or_leased(self, block: Block) -> None:
        if block.idle:
            self._queue.remove(block)
            self._num_cached -= block.hash is not None
        elif block.refs == 0:
            self._num_leased -= 1

    def _enter_idle(self, block: Block) -> None:
        if not block.idle:
            return
        if block.hash is None:
            self._queue.push_front(block)
        else:
            self._queue.push_back(block)
            self._num_cached += 1

    def _forget(self, blocks: Iterable[Block]) -> None:
        """Drops what idle blocks held."""
        removed: list[bytes] = []
        for block in blocks:
            if block.hash is None:
                continue
            self._num_cached -= 1
            if self._index.remove(block.hash, block.id):
                removed.append(block.hash)
            block.hash = None
        if removed:
            self._on_removed(removed)

    def _check_counts(self, block_ids: Sequence[int], counter: str) -> None:
        wanted: dict[int, int] = {}
        for block_id in block_ids:
            wanted[block_id] = wanted.get(block_id, 0) + 1
        for block_id, count in wanted.items():
            if getattr(self._blocks[block_id], counter) < count:
                raise IntegrityError(f"block {block_id}: {count} {counter} given up, fewer held")

    def check_integrity(self) -> None:
        """Recounts everything. O(pool). Raises IntegrityError that says which books disagree."""
        queued = [block.id for block in self._queue]
        _require(len(queued) == len(set(queued)) == len(self._queue), "a block is queued twice")
        for block in self._blocks:
            _require(block.refs >= 0 and block.leases >= 0, f"block {block.id} has a negative count")
        idle = {block.id for block in self._blocks if block.idle}
        _require(idle == set(queued), "idle blocks and the free queue differ")
        cached = sum(block.idle and block.hash is not None for block in self._blocks)
        _require(cached == self._num_cached, "cached count is off")
        leased = sum(block.refs == 0 and block.leases > 0 for block in self._blocks)
        _require(leased == self._num_leased, "leased count is off")
        states = self.num_free + self.num_cached + self.num_referenced + self.num_leased
        _require(states == len(self._blocks), "the four states do not sum to the pool")
        listed = {(h, i) for h, copies in self._index.items() for i in copies}
        named = {(block.hash, block.id) for block in self._blocks if block.hash is not None}
        _require(listed == named, "the prefix index and the blocks differ")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IntegrityError(message)
