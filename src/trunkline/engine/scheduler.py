"""The scheduler: which requests hold blocks, and which of their tokens the next step computes.

Owns the queues and every request's state, moves blocks through the BlockPool, and refuses to know torch, threads
and sockets. Time is an argument. Not thread-safe: the engine's lock is held around every call.

A request waits (in order of arrival) until blocks for all its tokens are there, so that no half-computed prompt
waits for another; it then runs, or first loads what others write into its blocks. A step spends its token budget
on decodes, then on prefill chunks. When a running request needs one more block and none is idle, the youngest gives
its blocks up and is computed again later: the oldest always goes on, so there is no deadlock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from trunkline.cache.block_pool import BlockPool, IntegrityError, NoFreeBlocks
from trunkline.config import EngineConfig
from trunkline.engine.request import (
    Admitted,
    BlocksReady,
    Event,
    Failed,
    Finished,
    FinishReason,
    Job,
    NewTokens,
    Phase,
    Request,
)
from trunkline.errors import TrunklineError

Outputs = list[tuple[Request, Event]]


@dataclass(frozen=True)
class Chunk:
    """Tokens start .. start+count-1 of a request, to be computed in one step."""

    request: Request
    start: int
    count: int

    @property
    def samples(self) -> bool:
        """Its last token is the request's last one: a new token follows it."""
        return self.start + self.count == len(self.request.token_ids)


@dataclass
class SchedulerStats:
    """Totals since start."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0


class Scheduler:
    def __init__(
        self, config: EngineConfig, pool: BlockPool, *, max_model_len: int, eos_token_ids: Sequence[int]
    ) -> None:
        self._config = config
        self._pool = pool
        self._max_model_len = max_model_len
        self._eos = frozenset(eos_token_ids)
        self.waiting: deque[Request] = deque()
        #: Loading and running requests together, oldest first.
        self.active: list[Request] = []
        #: Finished or released requests whose blocks are still in use.
        self.ending: set[Request] = set()
        self.stats = SchedulerStats()

    @property
    def running(self) -> list[Request]:
        return [r for r in self.active if r.phase is Phase.RUNNING]

    @property
    def queued_tokens(self) -> int:
        """Tokens admitted or waiting that are not computed yet."""
        return sum(r.num_uncomputed for r in (*self.waiting, *self.active))

    # -- a request's way

    def submit(self, request: Request, now: float) -> None:
        """Queues a new request. The caller has checked that it fits the model and the whole pool."""
        request.submitted_at = now
        self.waiting.append(request)

    def schedule(self, now: float) -> tuple[list[Chunk], Outputs]:
        """The next step's chunks, decodes first, each request held until postprocess(). Empty when nothing can run."""
        outputs = self._admit(now)
        budget = self._config.max_batched_tokens
        chunks: list[Chunk] = []
        for request in self.running:
            if request.num_uncomputed == 1 and budget > 0 and self._ensure_block(request):
                chunks.append(Chunk(request, request.num_computed, 1))
                budget -= 1
        for request in self.running:
            if request.num_uncomputed > 1 and budget > 0:
                count = min(budget, request.num_uncomputed)
                chunks.append(Chunk(request, request.num_computed, count))
                budget -= count
        for chunk in chunks:
            chunk.request.holds += 1
        return chunks, outputs

    def postprocess(self, chunks: Sequence[Chunk], sampled: Sequence[int | TrunklineError], now: float) -> Outputs:
        """Books a step's results: `sampled` has a token, or why there is none, per chunk that samples, in order."""
        outputs: Outputs = []
        results = iter(sampled)
        for chunk in chunks:
            request = chunk.request
            result = next(results) if chunk.samples else None
            self.unhold(request)
            if request.phase is not Phase.RUNNING or request.released:
                continue
            if isinstance(result, TrunklineError):
                self._finish(request)
                outputs.append((request, Failed(result)))
                continue
            request.num_computed += chunk.count
            self.stats.computed_tokens += chunk.count
            self._commit_full_blocks(request)
            if request.job is Job.PREFILL:
                outputs.append((request, BlocksReady(request.num_committed)))
            if result is not None:
                outputs += self._append(request, result, now)
        return outputs

    def fail(self, chunks: Sequence[Chunk], error: TrunklineError) -> Outputs:
        """Ends every request of a step that could not be computed."""
        outputs: Outputs = []
        for chunk in chunks:
            self.unhold(chunk.request)
            if chunk.request.phase is Phase.RUNNING and not chunk.request.released:
                self._finish(chunk.request)
                outputs.append((chunk.request, Failed(error)))
        return outputs

    def loaded(self, request: Request, good_blocks: int, first_token: int | None, now: float) -> Outputs:
        """A loading request's first `good_blocks` blocks hold verified KV; the rest is to be computed here.

        `first_token` is what the prefill node sampled (DECODE only). A request that was released is left as it is.
        """
        if request.phase is not Phase.LOADING or request.released:
            return []
        tokens = min(good_blocks * self._config.block_size, request.prompt_len)
        if first_token is None:
            tokens = min(tokens, request.prompt_len - 1)  # the last token is computed, always
        request.num_computed = max(tokens, request.num_computed)
        request.phase = Phase.RUNNING
        self._commit_full_blocks(request)
        return [] if first_token is None else self._append(request, first_token, now, announce=False)

    def release(self, request: Request) -> None:
        """Its owner lets go: it ends where it stands. Blocks come back now or when the last hold ends. Idempotent."""
        if request.released:
            return
        request.released = True
        if request.phase is Phase.WAITING:
            self.waiting.remove(request)
            request.phase = Phase.FINISHED
        elif request.phase is not Phase.FINISHED:
            self._finish(request)
        self._settle(request)

    def hold(self, request: Request) -> None:
        """Somebody begins to write into its blocks."""
        request.holds += 1

    def unhold(self, request: Request) -> None:
        if request.holds <= 0:
            raise IntegrityError(f"request {request.id}: a hold ended twice")
        request.holds -= 1
        self._settle(request)

    # -- inside

    def _admit(self, now: float) -> Outputs:
        outputs: Outputs = []
        while self.waiting and len(self.active) < self._config.max_running:
            request = self.waiting[0]
            if not self._take_blocks(request):
                break
            self.waiting.popleft()
            self._insert_active(request)
            first = request.num_cached is None
            request.phase = Phase.LOADING if first and request.load_first else Phase.RUNNING
            if first:
                request.num_cached = request.num_computed
                request.admitted_at = now
                self.stats.prompt_tokens += request.prompt_len
                self.stats.cached_tokens += request.num_cached
                outputs.append((request, Admitted(request.num_committed)))
        return outputs

    def _take_blocks(self, request: Request) -> bool:
        """Blocks for all tokens of `request`, cached ones first. False, and nothing changed, when there are too few."""
        # A hit never covers everything: the last token's logits are wanted, unless they came with a handoff.
        handoff = request.job is Job.DECODE and request.num_generated == 0
        hittable = (len(request.token_ids) - (not handoff)) // self._config.block_size
        hit = self._pool.find_longest_cache_hit(request.block_hashes(hittable))
        self._pool.share(hit)
        try:
            new = self._pool.allocate(request.blocks_for(len(request.token_ids)) - len(hit))
        except NoFreeBlocks:
            self._pool.free(hit)
            return False
        request.block_table = hit + new
        request.num_committed = len(hit)
        request.num_computed = len(hit) * self._config.block_size
        return True

    def _insert_active(self, request: Request) -> None:
        """Keeps `active` in order of arrival: a preempted request gets its old place back."""
        at = len(self.active)
        while at and self.active[at - 1].submitted_at > request.submitted_at:
            at -= 1
        self.active.insert(at, request)

    def _ensure_block(self, request: Request) -> bool:
        """A block for the next token, at the price of the youngest requests. False if it was itself the youngest."""
        while request.phase is Phase.RUNNING and request.blocks_for(len(request.token_ids)) > len(request.block_table):
            if self._pool.num_allocatable:
                request.block_table += self._pool.allocate(1)
                break
            self._preempt(self._youngest(request))
        return request.phase is Phase.RUNNING

    def _youngest(self, request: Request) -> Request:
        """The last to have come of those that could be computed again; `request` itself if there is none younger."""
        for candidate in reversed(self.active):
            if candidate is request:
                break
            if candidate.phase is Phase.RUNNING and candidate.job is not Job.PREFILL and not candidate.holds:
                return candidate
        return request

    def _preempt(self, request: Request) -> None:
        self.active.remove(request)
        self._pool.free(request.block_table)
        request.block_table = []
        request.num_computed = request.num_committed = 0
        request.phase = Phase.WAITING
        self.stats.preemptions += 1
        at = sum(w.submitted_at <= request.submitted_at for w in self.waiting)
        self.waiting.insert(at, request)

    def _commit_full_blocks(self, request: Request) -> None:
        full = request.num_computed // self._config.block_size
        for i, block_hash in enumerate(request.block_hashes(full)[request.num_committed :], request.num_committed):
            self._pool.commit(request.block_table[i], block_hash)
        request.num_committed = max(full, request.num_committed)

    def _append(self, request: Request, token: int, now: float, *, announce: bool = True) -> Outputs:
        """One more token of the answer, which may be its last. `announce` is for tokens sampled here."""
        request.token_ids.append(token)
        request.first_token_at = request.first_token_at or now
        self.stats.generated_tokens += announce
        outputs: Outputs = [(request, NewTokens((token,)))] if announce else []
        reason = self._end_reason(request, token)
        if reason is not None:
            self._finish(request)
            outputs.append((request, Finished(reason)))
        return outputs

    def _end_reason(self, request: Request, token: int) -> FinishReason | None:
        if token in self._eos and not request.sampling.ignore_eos:
            return FinishReason.STOP
        full = request.num_generated >= request.sampling.max_tokens or len(request.token_ids) >= self._max_model_len
        return FinishReason.LENGTH if full or request.job is Job.PREFILL else None

    def _finish(self, request: Request) -> None:
        self.active.remove(request)
        request.phase = Phase.FINISHED
        self.ending.add(request)
        self._settle(request)

    def _settle(self, request: Request) -> None:
        """Frees an ended request's blocks once nobody writes into them. A PREFILL request's also wait for release()."""
        over = request.phase is Phase.FINISHED and (request.released or request.job is not Job.PREFILL)
        if over and not request.holds:
            self._pool.free(request.block_table)
            request.block_table = []
            self.ending.discard(request)

    def check_integrity(self) -> None:
        """Queues, phases and blocks agree; the pool's references are just these requests'. Raises IntegrityError."""
        self._pool.check_integrity()
        for request in self.waiting:
            _require(request.phase is Phase.WAITING and not request.block_table, f"waiting request {request.id}")
        for request in self.active:
            _require(request.phase in (Phase.LOADING, Phase.RUNNING), f"active request {request.id}")
            _require(request.blocks_for(request.num_computed) <= len(request.block_table), f"short table {request.id}")
        for request in self.ending:
            _require(request.phase is Phase.FINISHED, f"ending request {request.id}")
        used = {b for r in (*self.active, *self.ending) for b in r.block_table}
        _require(len(used) == self._pool.num_referenced, "referenced blocks are not the requests' blocks")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IntegrityError(message)
