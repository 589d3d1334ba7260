"""The order in which idle blocks are reused: a doubly linked list through the blocks themselves.

Knows order only, not why a block is idle. Every operation is O(1), removal from the middle included,
which is what a hit on an idle block needs.
"""

from __future__ import annotations

from collections.abc import Iterator


class Block:
    """One physical block's books. Owned by BlockPool; nobody else writes its fields."""

    __slots__ = ("generation", "hash", "id", "leases", "next", "prev", "refs")

    def __init__(self, block_id: int) -> None:
        self.id = block_id
        #: Requests (and pulls in flight) that use it.
        self.refs = 0
        #: Leases given to peers.
        self.leases = 0
        #: Grows each time the block is given new content.
        self.generation = 0
        #: Its name while it holds a full, committed block.
        self.hash: bytes | None = None
        self.prev: Block | None = None
        self.next: Block | None = None

    @property
    def idle(self) -> bool:
        """Nobody uses it: it may be reused."""
        return self.refs == 0 and self.leases == 0


class FreeQueue:
    """Idle blocks, next to be reused first."""

    def __init__(self) -> None:
        # One sentinel closes the ring, so that no operation has an end to care for.
        self._ring = Block(-1)
        self._ring.prev = self._ring.next = self._ring
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Block]:
        block = self._ring.next
        while block is not None and block is not self._ring:
            yield block
            block = block.next

    def push_back(self, block: Block) -> None:
        """Reused last. `block` must not be queued."""
        self._insert_before(block, self._ring)

    def push_front(self, block: Block) -> None:
        """Reused next. `block` must not be queued."""
        assert self._ring.next is not None
        self._insert_before(block, self._ring.next)

    def remove(self, block: Block) -> None:
        """Takes `block` out, wherever it stands. It must be queued."""
        before, after = block.prev, block.next
        if before is None or after is None:
            raise ValueError(f"block {block.id} is not in the free queue")
        before.next, after.prev = after, before
        block.prev = block.next = None
        self._size -= 1

    def pop_front(self) -> Block:
        """Takes the block that is to be reused next. Raises IndexError when there is none."""
        block = self._ring.next
        if block is None or block is self._ring:
            raise IndexError("no idle block")
        self.remove(block)
        return block

    def _insert_before(self, block: Block, after: Block) -> None:
        if block.prev is not None:
            raise ValueError(f"block {block.id} is in the free queue already")
        before = after.prev
        assert before is not None
        before.next, block.prev, block.next, after.prev = block, before, after, block
        self._size += 1
