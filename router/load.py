"""What this router has sent to each node and not got back.

Counted at dispatch, so that stale heartbeats cannot herd.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class DispatchedLoad:
    """By epoch. Every charge is settled on every kind of end; at rest all is 0."""

    def __init__(self) -> None:
        self._prefill_tokens: dict[str, int] = defaultdict(int)
        self._decodes: dict[str, int] = defaultdict(int)

    def prefill_tokens(self, epoch: str) -> int:
        """Uncached prompt tokens on their way through the node."""
        return self._prefill_tokens.get(epoch, 0)

    def decodes(self, epoch: str) -> int:
        """Requests that decode, or will, on the node."""
        return self._decodes.get(epoch, 0)

    @property
    def total(self) -> int:
        return sum(self._prefill_tokens.values()) + sum(self._decodes.values())

    @contextmanager
    def prefilling(self, epoch: str, tokens: int) -> Iterator[None]:
        with _counted(self._prefill_tokens, epoch, tokens):
            yield

    @contextmanager
    def decoding(self, epoch: str) -> Iterator[None]:
        with _counted(self._decodes, epoch, 1):
            yield


@contextmanager
def _counted(counts: dict[str, int], epoch: str, amount: int) -> Iterator[None]:
    counts[epoch] += amount
    try:
        yield
    finally:
        counts[epoch] -= amount
        if not counts[epoch]:
            del counts[epoch]
