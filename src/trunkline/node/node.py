"""All that one node process owns, put together, and the few operations that its services share.

Prefill and decode nodes differ in the services that they offer, not in what stands here: an engine with its pool and KV
memory, leases and the transport that serves them, the puller, the publisher of the global index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from trunkline.config import NodeConfig
from trunkline.engine.request import Event, Failed, Job, Request
from trunkline.engine.scheduler import Outputs
from trunkline.errors import Internal, TrunklineError, Unavailable
from trunkline.index.records import NodeLoad, NodeRecord
from trunkline.node.requests import EventStream, Limits, Start, make_request
from trunkline.transfer.contract import BlockHandle, HandleBatch
from trunkline.transfer.puller import PullResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.engine.engine import Engine
    from trunkline.engine.kv_store import KvStore
    from trunkline.node.lease_keeper import LeaseKeeper
    from trunkline.transfer.contract import KvTransport
    from trunkline.transfer.puller import Puller

T = TypeVar("T")

log = logging.getLogger(__name__)


class Node:
    """Lives on one event loop; only the engine has a thread of its own. Assembled by trunkline.node.runtime."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        record: NodeRecord,
        limits: Limits,
        engine: Engine,
        store: KvStore,
        transport: KvTransport,
        leases: LeaseKeeper,
        puller: Puller,
    ) -> None:
        self.config = config
        self.record = record
        self.limits = limits
        self.engine = engine
        self.store = store
        self.transport = transport
        self.leases = leases
        self.puller = puller
        self.draining = False
        self._open = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    # -- requests

    @contextmanager
    def request(self, start: Start, job: Job, *, load_first: bool = False) -> Iterator[tuple[Request, EventStream]]:
        """A request in the engine for as long as the block lasts; whatever happens, the engine lets go of it then."""
        if self.draining:
            raise Unavailable(f"node {self.record.name} is draining", self.record.name)
        events = EventStream()
        request = make_request(start, job, self.limits, events, load_first=load_first)
        self._open += 1
        self.engine.submit(request)
        try:
            yield request, events
        finally:
            self.engine.release(request)
            self._open -= 1
            self._changed.set()

    def pull(self, request: Request, batch: HandleBatch) -> asyncio.Task[PullResult]:
        """Starts pulling `batch` into the request's blocks, which stay its own until the pull has ended."""
        local_ids = [request.block_table[handle.index] for handle in batch.handles]
        return self.background(self._pull(request, batch, local_ids))

    def background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs what must end after its request's call, such as a pull or a release. A draining node waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _pull(self, request: Request, batch: HandleBatch, local_ids: Sequence[int]) -> PullResult:
        with self.engine.writing(request):
            return await self.puller.pull(batch, local_ids)

    async def handles(self, lease_id: str, block_ids: Sequence[int], first: int) -> HandleBatch:
        """Handles of leased, complete blocks whose place in the prompt begins at `first`.

        A long prefix has hundreds of megabytes to digest, which the event loop must not wait for.
        """
        return await asyncio.to_thread(self._handles, lease_id, block_ids, first)

    def _handles(self, lease_id: str, block_ids: Sequence[int], first: int) -> HandleBatch:
        handles = tuple(
            BlockHandle(
                index=index,
                block_id=block_id,
                generation=self.engine.pool.generation(block_id),
                digest=self.store.digest(block_id),
                nbytes=self.store.block_bytes,
            )
            for index, block_id in enumerate(block_ids, first)
        )
        return HandleBatch(
            node=self.record.name,
            epoch=self.record.epoch,
            address=self.record.address,
            lease_id=lease_id,
            handles=handles,
        )

    # -- what others want to know

    def load(self) -> NodeLoad:
        """For the heartbeat."""
        with self.engine.books():
            pool, scheduler = self.engine.pool, self.engine.scheduler
            return NodeLoad(
                running=len(scheduler.active),
                waiting=len(scheduler.waiting),
                queued_tokens=scheduler.queued_tokens,
                blocks_free=pool.num_free,
                blocks_cached=pool.num_cached,
                blocks_referenced=pool.num_referenced,
                blocks_leased=pool.num_leased,
                leases=len(self.leases),
                draining=self.draining,
            )

    def integrity_error(self) -> str:
        """Runs every check_integrity() of this process; the first fault in words, or nothing."""
        try:
            self.engine.check_integrity()
            self.leases.check_integrity()
        except Exception as error:
            log.exception("integrity check failed")
            return str(error)
        return ""

    @property
    def idle(self) -> bool:
        """No request, nothing in the background and no lease."""
        return self._open == 0 and not self._tasks and len(self.leases) == 0

    async def wait_idle(self, timeout_s: float) -> bool:
        """Waits for `idle`; False when `timeout_s` ended first."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.idle:
                    await self._wait_for_change()
        except TimeoutError:
            return False
        return True

    async def _wait_for_change(self) -> None:
        pulls = [asyncio.ensure_future(self._changed.wait()), *self._tasks]
        # Leases end without a word to us; look again each second, which only a draining node does.
        await asyncio.wait(pulls, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        pulls[0].cancel()
        self._changed.clear()


def deliver_on(loop: asyncio.AbstractEventLoop) -> Callable[[Outputs], None]:
    """Engine events to their requests' sinks on `loop`, one wake-up per step."""

    def deliver(outputs: Outputs) -> None:
        if outputs and not loop.is_closed():
            loop.call_soon_threadsafe(_dispatch, outputs)

    return deliver


def _dispatch(outputs: Outputs) -> None:
    for request, event in outputs:
        request.sink(event)


def failure(error: BaseException) -> Event:
    """What went wrong beside the engine, as the event that ends a request's stream."""
    if isinstance(error, TrunklineError):
        return Failed(error)
    log.error("a request failed", exc_info=error)
    return Failed(Internal(f"the request failed ({type(error).__name__}); the node's log says why"))
