"""The engine of a node: one thread that computes steps, and the lock that guards all its books.

step() reads as the system: schedule, run, postprocess, deliver. Torch runs outside the lock, so that admission,
leases and aborts never wait for a forward pass. Knows no sockets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from trunkline.cache.block_pool import BlockPool
from trunkline.engine.request import Request
from trunkline.engine.scheduler import Chunk, Outputs, Scheduler
from trunkline.errors import Internal, TrunklineError

log = logging.getLogger(__name__)


class Runner(Protocol):
    """Computes one step; see ModelRunner.run."""

    def run(self, chunks: Sequence[Chunk]) -> list[int | TrunklineError]: ...


class Engine:
    """`deliver` is called with each step's events, outside the lock, on the thread that caused them."""

    def __init__(
        self,
        scheduler: Scheduler,
        pool: BlockPool,
        runner: Runner,
        deliver: Callable[[Outputs], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheduler = scheduler
        self.pool = pool
        self._runner = runner
        self._deliver = deliver
        self._clock = clock
        self._changed = threading.Condition()
        self._dirty = False
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)

    # -- any thread

    @contextmanager
    def books(self) -> Iterator[None]:
        """Holds the lock over scheduler, pool and all that is kept with them; the step loop looks again afterwards."""
        with self._changed:
            yield
            self._dirty = True
            self._changed.notify_all()

    def submit(self, request: Request) -> None:
        with self.books():
            self.scheduler.submit(request, self._clock())

    def loaded(self, request: Request, good_blocks: int, first_token: int | None = None) -> None:
        """See Scheduler.loaded()."""
        with self.books():
            outputs = self.scheduler.loaded(request, good_blocks, first_token, self._clock())
        self._deliver(outputs)

    @contextmanager
    def writing(self, request: Request) -> Iterator[None]:
        """While inside, the request's blocks are not reused, whatever becomes of the request."""
        with self.books():
            self.scheduler.hold(request)
        try:
            yield
        finally:
            with self.books():
                self.scheduler.unhold(request)

    def release(self, request: Request) -> None:
        """See Scheduler.release()."""
        with self.books():
            self.scheduler.release(request)

    def check_integrity(self) -> None:
        """Raises IntegrityError when any two books disagree."""
        with self._changed:
            self.scheduler.check_integrity()

    # -- the engine's thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the step in flight; requests stay as they are."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def step(self) -> bool:
        """Computes one step. False when there was nothing to compute."""
        with self._changed:
            self._dirty = False
            chunks, outputs = self.scheduler.schedule(self._clock())
        self._deliver(outputs)
        if not chunks:
            return False
        try:
            sampled = self._runner.run(chunks)
        except Exception as error:
            log.exception("a step of %d requests failed", len(chunks))
            self._fail(chunks, error)
            return True
        with self._changed:
            outputs = self.scheduler.postprocess(chunks, sampled, self._clock())
        self._deliver(outputs)
        return True

    def _fail(self, chunks: Sequence[Chunk], error: Exception) -> None:
        with self._changed:
            reason = Internal(f"the step failed ({type(error).__name__}); the node's log says why")
            outputs = self.scheduler.fail(chunks, reason)
        self._deliver(outputs)

    def _loop(self) -> None:
        while not self._stopping:
            if not self.step():
                with self._changed:
                    self._changed.wait_for(lambda: self._dirty or self._stopping)
