"""The engine's books and tokens under every kind of traffic, with a model whose KV is the tokens themselves.

The runner here writes each token into its slot and, before "computing", reads the whole context back through the
block table. So a wrong block, a block reused too early or a wrong hit shows at once as a wrong context, not as a
slightly wrong logit.
"""

import zlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trunkline.cache.block_hash import seed_hash
from trunkline.cache.block_pool import BlockPool, IntegrityError
from trunkline.config import EngineConfig
from trunkline.engine.engine import Engine
from trunkline.engine.request import (
    Admitted,
    BlocksReady,
    Failed,
    Finished,
    FinishReason,
    Job,
    NewTokens,
    Request,
    Sampling,
)
from trunkline.engine.scheduler import Scheduler
from trunkline.errors import Internal

BLOCK = 4
EOS = 7
VOCAB = 50
MAX_LEN = 64


def next_token(context: list[int]) -> int:
    return zlib.crc32(repr(context).encode()) % VOCAB


def expected_answer(prompt: list[int], max_tokens: int) -> list[int]:
    tokens = list(prompt)
    while len(tokens) - len(prompt) < max_tokens and len(tokens) < MAX_LEN:
        tokens.append(next_token(tokens))
        if tokens[-1] == EOS:
            break
    return tokens[len(prompt) :]


class SlotRunner:
    """A runner whose KV cache holds token ids, so that it can check what it reads."""

    def __init__(self, blocks: int):
        self.slots = [-1] * (blocks * BLOCK)
        self.sizes: list[int] = []
        self.broken = False

    def slot(self, request: Request, position: int) -> int:
        return request.block_table[position // BLOCK] * BLOCK + position % BLOCK

    def fill(self, request: Request, block: int) -> None:
        """What a pull does: the right content for one block of the prompt."""
        for position in range(block * BLOCK, min((block + 1) * BLOCK, request.prompt_len)):
            self.slots[self.slot(request, position)] = request.token_ids[position]

    def run(self, chunks):
        if self.broken:
            raise RuntimeError("no arithmetic today")
        self.sizes.append(sum(chunk.count for chunk in chunks))
        sampled = []
        for chunk in chunks:
            end = chunk.start + chunk.count
            for position in range(chunk.start, end):
                self.slots[self.slot(chunk.request, position)] = chunk.request.token_ids[position]
            context = [self.slots[self.slot(chunk.request, position)] for position in range(end)]
            assert context == chunk.request.token_ids[:end]
            if chunk.samples:
                sampled.append(next_token(context))
        return sampled


class Rig:
    """An engine stepped by hand."""

    def __init__(self, blocks=32, **config):
        self.config = EngineConfig(block_size=BLOCK, num_blocks=blocks, **config)
        self.pool = BlockPool(blocks)
        self.runner = SlotRunner(blocks)
        scheduler = Scheduler(self.config, self.pool, max_model_len=MAX_LEN, eos_token_ids=[EOS])
        self.events: dict[Request, list] = {}
        self.now = 0.0
        self.engine = Engine(scheduler, self.pool, self.runner, self.deliver, clock=self.clock)

    def clock(self):
        self.now += 1.0
        return self.now

    def deliver(self, outputs):
        for request, event in outputs:
            request.sink(event)

    def submit(self, prompt, max_tokens=8, job=Job.FULL, load_first=False) -> Request:
        events: list = []
        request = Request(
            request_id=f"r{len(self.events)}",
            token_ids=prompt,
            sampling=Sampling(max_tokens=max_tokens),
            job=job,
            block_size=BLOCK,
            hash_seed=seed_hash(b"test"),
            sink=events.append,
            load_first=load_first,
        )
        self.events[request] = events
        self.engine.submit(request)
        return request

    def step(self) -> bool:
        worked = self.engine.step()
        self.engine.check_integrity()
        return worked

    def run(self):
        while self.step():
            pass

    def answer(self, request) -> list[int]:
        return [t for e in self.events[request] if isinstance(e, NewTokens) for t in e.ids]

    def assert_idle(self):
        self.engine.check_integrity()
        assert self.pool.num_referenced == self.pool.num_leased == 0


def test_a_request_is_computed_in_chunks_and_then_token_by_token():
    rig = Rig(max_batched_tokens=5)
    prompt = list(range(10, 22))
    request = rig.submit(prompt, max_tokens=3)
    rig.run()
    assert rig.answer(request) == expected_answer(prompt, 3)
    assert rig.runner.sizes[:3] == [5, 5, 2]
    assert rig.events[request][0] == Admitted(0)
    rig.assert_idle()


def test_cached_blocks_are_skipped_before_chunks_are_cut():
    rig = Rig(max_batched_tokens=8)
    prefix = list(range(10, 26))
    rig.submit(prefix, max_tokens=1)
    rig.run()
    rig.runner.sizes.clear()
    request = rig.submit(prefix + list(range(30, 38)), max_tokens=1)
    rig.run()
    assert rig.events[request][0] == Admitted(4)
    assert rig.runner.sizes == [8]


@pytest.mark.parametrize("length", [4 * k + d for k in (1, 3) for d in (-1, 0, 1)])
def test_a_repeated_prompt_hits_whole_blocks_but_never_everything(length):
    rig = Rig()
    prompt = list(range(10, 10 + length))
    cold = rig.submit(prompt, max_tokens=4)
    rig.run()
    warm = rig.submit(prompt, max_tokens=4)
    rig.run()
    assert rig.answer(cold) == rig.answer(warm) == expected_answer(prompt, 4)
    assert warm.num_cached == (length - 1) // BLOCK * BLOCK


def test_an_answer_is_a_prefix_hit_of_the_next_turn():
    rig = Rig()
    prompt = list(range(10, 17))
    request = rig.submit(prompt, max_tokens=9)
    rig.run()
    turn = rig.submit([*request.token_ids, 1, 2, 3], max_tokens=2)
    rig.run()
    assert turn.num_cached == (len(request.token_ids) - 1) // BLOCK * BLOCK
    assert rig.answer(turn) == expected_answer(turn.token_ids[: turn.prompt_len], 2)


def test_decodes_go_first_and_a_long_prompt_cannot_stall_them():
    rig = Rig(max_batched_tokens=6)
    running = rig.submit([20, 21], max_tokens=12)
    rig.step()
    rig.submit(list(range(10, 40)), max_tokens=1)
    for _ in range(4):
        before = len(rig.answer(running))
        rig.step()
        assert len(rig.answer(running)) == before + 1
        assert rig.runner.sizes[-1] <= 6


def test_when_blocks_run_out_the_youngest_gives_way_and_no_token_changes():
    rig = Rig(blocks=7)
    prompts = [[10 + i, 20 + i, 30 + i] for i in range(3)]
    requests = [rig.submit(p, max_tokens=20) for p in prompts]
    rig.run()
    for prompt, request in zip(prompts, requests, strict=True):
        assert rig.answer(request) == expected_answer(prompt, 20)
    assert rig.engine.scheduler.stats.preemptions > 0
    rig.assert_idle()


def test_a_prefill_job_keeps_its_blocks_until_released():
    rig = Rig(max_batched_tokens=6)
    prompt = list(range(10, 20))
    request = rig.submit(prompt, job=Job.PREFILL)
    rig.run()
    token = next_token(prompt)
    assert rig.events[request] == [
        Admitted(0),
        BlocksReady(1),
        BlocksReady(2),
        NewTokens((token,)),
        Finished(FinishReason.STOP if token == EOS else FinishReason.LENGTH),
    ]
    assert rig.pool.num_referenced == 3
    rig.engine.release(request)
    rig.assert_idle()


@pytest.mark.parametrize("missing", [None, 0, 1, 2])
def test_a_decode_job_computes_just_what_did_not_arrive(missing):
    rig = Rig()
    prompt = list(range(10, 20))
    request = rig.submit(prompt, max_tokens=6, job=Job.DECODE)
    rig.step()
    assert not rig.step(), "nothing to compute while it loads"
    good = 3 if missing is None else missing
    for block in range(good):
        rig.runner.fill(request, block)
    first = next_token(prompt)
    rig.engine.loaded(request, good, first)
    rig.run()
    assert [first, *rig.answer(request)] == expected_answer(prompt, 6)
    assert rig.engine.scheduler.stats.computed_tokens == max(0, len(prompt) - good * BLOCK) + 5
    rig.assert_idle()


def test_a_prefill_job_goes_on_from_what_a_peer_gave():
    rig = Rig()
    prompt = list(range(10, 22))
    request = rig.submit(prompt, job=Job.PREFILL, load_first=True)
    rig.step()
    for block in range(3):
        rig.runner.fill(request, block)
    rig.engine.loaded(request, 3)
    rig.run()
    assert rig.answer(request) == [next_token(prompt)]
    assert rig.engine.scheduler.stats.computed_tokens == 1


def test_blocks_in_the_making_outlive_a_release():
    rig = Rig()
    request = rig.submit(list(range(10, 20)), job=Job.DECODE)
    rig.step()
    with rig.engine.writing(request):
        rig.engine.release(request)
        assert rig.pool.num_referenced == 3, "a pull still writes into them"
    rig.assert_idle()
    rig.engine.loaded(request, 3, 5)
    assert not rig.step()


def test_a_failing_step_fails_its_requests_and_not_the_engine():
    rig = Rig()
    rig.runner.broken = True
    lost = rig.submit([1, 2, 3])
    rig.run()
    assert isinstance(rig.events[lost][-1], Failed)
    assert isinstance(rig.events[lost][-1].error, Internal)
    rig.runner.broken = False
    fine = rig.submit([1, 2, 3], max_tokens=2)
    rig.run()
    assert rig.answer(fine) == expected_answer([1, 2, 3], 2)
    rig.assert_idle()


def test_a_hold_that_ends_twice_is_a_fault():
    rig = Rig()
    request = rig.submit([1, 2, 3])
    with pytest.raises(IntegrityError):
        rig.engine.scheduler.unhold(request)


class EngineMachine(RuleBasedStateMachine):
    """Requests of every job come, load well or badly, and are released at any moment, on a pool too small for them."""

    def __init__(self):
        super().__init__()
        self.rig = Rig(blocks=20, max_batched_tokens=7, max_running=4)
        self.live: list[Request] = []
        self.first: dict[Request, int] = {}

    @rule(
        tag=st.integers(0, 2),
        length=st.integers(1, 30),
        max_tokens=st.integers(1, 12),
        job=st.sampled_from(Job),
        load_first=st.booleans(),
    )
    def submit(self, tag, length, max_tokens, job, load_first):
        prompt = [(tag * 13 + i) % VOCAB for i in range(length)]
        self.live.append(self.rig.submit(prompt, max_tokens, job, load_first and job is Job.PREFILL))

    @rule(steps=st.integers(1, 5))
    def step(self, steps):
        for _ in range(steps):
            self.rig.step()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def load(self, data):
        request = data.draw(st.sampled_from(self.live))
        if request.phase.name != "LOADING":
            return
        cached = request.num_committed
        good = data.draw(st.integers(cached, request.blocks_for(request.prompt_len)))
        with self.rig.engine.writing(request):
            for block in range(cached, good):
                self.rig.runner.fill(request, block)
        first = next_token(request.token_ids) if request.job is Job.DECODE else None
        if first is not None:
            self.first[request] = first
        self.rig.engine.loaded(request, good, first)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data):
        request = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        self.rig.engine.release(request)
        self.rig.engine.release(request)

    @invariant()
    def books_agree_and_tokens_are_right(self):
        self.rig.engine.check_integrity()
        for request in self.live:
            answer = ([self.first[request]] if request in self.first else []) + self.rig.answer(request)
            most = 1 if request.job is Job.PREFILL else request.sampling.max_tokens
            whole = expected_answer(request.token_ids[: request.prompt_len], most)
            assert answer == whole[: len(answer)]
            if any(isinstance(e, Finished) for e in self.rig.events[request]):
                assert answer == whole

    def teardown(self):
        for request in self.live:
            if request.job is Job.DECODE or request.load_first:
                self.rig.engine.release(request)
        self.rig.run()
        for request in self.live:
            if request.job is Job.FULL:
                assert any(isinstance(e, Finished) for e in self.rig.events[request]), "starved"
            self.rig.engine.release(request)
            self.rig.run()
        self.rig.assert_idle()


EngineMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestEngineMachine = EngineMachine.TestCase
