"""The cluster against what it promises: the oracle's tokens, hits, clean ends, clear errors, calm deaths."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import psutil
import pytest

from trunkline import model_store
from trunkline.client import Client, request_of
from trunkline.errors import InvalidArgument, NotFound, Unavailable
from trunkline.testing.oracle import Oracle
from trunkline.v1 import common_pb2, inference_pb2, inference_pb2_grpc, nodes_pb2, nodes_pb2_grpc

LENGTHS = [2, 3, 7, 15, 16, 17, 31, 32, 33, 100, 127, 128, 129, 255, 256, 257, 511, 512, 1000, 2000]
ANSWER = 64
VOCAB = 49152


def prompt(length, seed=0):
    rng = random.Random(1000 * seed + length)
    return [rng.randrange(100, VOCAB) for _ in range(length)]


def ask(client, ids, count=ANSWER, **kwargs):
    tokens, usage = [], None
    for event in client.generate(request_of(ids, max_tokens=count, ignore_eos=True, **kwargs), timeout_s=120):
        tokens += event.chunk.token_ids
        if event.HasField("finished"):
            usage = event.finished.usage
    assert usage is not None
    assert usage.prompt_tokens == len(ids) == usage.cached_local + usage.cached_peer + usage.computed
    return tokens, usage


@pytest.fixture(scope="module")
def client(cluster):
    with Client(cluster.address) as client:
        yield client


def wait_quiet(cluster, timeout_s=2.0, nodes=3):
    """All blocks, leases and requests come back, and all books agree."""
    deadline = time.monotonic() + timeout_s
    while True:
        state = cluster.state(verify=True)
        busy = [
            (n.node.name, n.blocks_referenced, n.blocks_leased, n.leases, n.running_requests, n.waiting_requests)
            for n in state.nodes
            if n.blocks_referenced or n.blocks_leased or n.leases or n.running_requests or n.waiting_requests
        ]
        assert not any(n.integrity_error for n in state.nodes)
        if not busy and len(state.nodes) == nodes and not state.router.running_requests:
            return
        assert time.monotonic() < deadline, (busy, state)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def expected():
    oracle = Oracle(model_store.pull(model_store.DEFAULT_MODEL))
    return {length: oracle.greedy(prompt(length), ANSWER) for length in LENGTHS}


@pytest.mark.timeout(600)
def test_greedy_answers_equal_the_oracles_cold_warm_and_eight_at_once(cluster, client, expected):
    for length in LENGTHS:
        tokens, usage = ask(client, prompt(length))
        assert tokens == expected[length], f"cold, {length} tokens"
        assert usage.recomputed == 0
    for length in LENGTHS:
        tokens, usage = ask(client, prompt(length))
        assert tokens == expected[length], f"warm, {length} tokens"
        assert usage.cached_local + usage.cached_peer == (length - 1) // 16 * 16
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda length: ask(client, prompt(length))[0], LENGTHS))
        assert together == [expected[length] for length in LENGTHS], "eight at once, warm"
        salted = list(pool.map(lambda length: ask(client, prompt(length), cache_salt="x")[0], LENGTHS[:12]))
        assert salted == [expected[length] for length in LENGTHS[:12]], "eight at once, cold"
    wait_quiet(cluster)


def test_a_shared_prefix_is_computed_once_lands_where_it_lies_and_shows_in_ttft(cluster, client):
    prefix = prompt(1024, seed=5)
    _, cold = ask(client, prefix + prompt(64, seed=6), 4)
    _, warm = ask(client, prefix + prompt(64, seed=7), 4)
    assert (cold.cached_local, cold.computed) == (0, 1088)
    assert (warm.cached_local, warm.computed) == (1024, 64)
    assert warm.prefill_node == cold.prefill_node
    assert warm.decode_cached_blocks == 64
    assert warm.transferred_blocks == 4
    assert warm.ttft_ms < cold.ttft_ms / 2
    wait_quiet(cluster)


def test_blocks_are_given_back_when_the_bytes_have_moved_not_when_the_answer_ends(cluster, client):
    events = client.generate(request_of(prompt(300, seed=21), max_tokens=400, ignore_eos=True), timeout_s=60)
    tokens = 0
    while tokens < 20:
        tokens += len(next(events).chunk.token_ids)
    try:
        state = cluster.state()
        assert sum(n.running_requests for n in state.nodes) == 1, "it still decodes"
        assert sum(n.leases for n in state.nodes) == 0
    finally:
        events.close()
    wait_quiet(cluster)


@pytest.mark.parametrize("length", [64, 65])
def test_a_prompt_that_the_decode_node_holds_whole_moves_nothing_and_leaves_no_lease(cluster, client, length):
    ids = prompt(length, seed=23)
    first, _ = ask(client, ids, 4)
    again, usage = ask(client, ids, 4)
    assert again == first
    assert usage.decode_cached_blocks == 4
    assert usage.transferred_blocks == (length % 16 > 0)
    wait_quiet(cluster)


def test_a_prefill_node_pulls_a_prefix_from_a_peer_instead_of_computing_it(cluster, client):
    ids = prompt(500, seed=22)
    first, usage = ask(client, ids, 1)
    nodes = {n.node.name: n for n in cluster.state().nodes}
    holder = nodes[usage.prefill_node.name]
    other = next(n for n in nodes.values() if n.role == holder.role and n.node.name != holder.node.name)
    request = nodes_pb2.PrefillRequest(
        request_id="pull",
        fingerprint=bytes.fromhex(holder.fingerprint),
        token_ids=ids,
        sampling=common_pb2.SamplingParams(max_tokens=1),
        peer=nodes_pb2.PeerHint(node=holder.node, address=holder.address, blocks=31),
    )
    with grpc.insecure_channel(other.address) as channel:
        done = list(nodes_pb2_grpc.PrefillNodeStub(channel).Prefill(request, timeout=30))[-1].done
    assert (done.cached_local, done.cached_peer, done.computed) == (0, 496, 4)
    assert [done.first_token] == first
    with grpc.insecure_channel(other.address) as channel:
        release = nodes_pb2.ReleaseRequest(lease_ids=[done.handles.lease_id])
        nodes_pb2_grpc.KvSourceStub(channel).Release(release, timeout=5)
    wait_quiet(cluster)


def test_a_salt_shares_nothing(client):
    ids = prompt(100, seed=8)
    ask(client, ids, 2)
    _, other = ask(client, ids, 2, cache_salt="mine")
    _, again = ask(client, ids, 2, cache_salt="mine")
    assert (other.cached_local, again.cached_local) == (0, 96)


def test_a_seed_gives_the_same_tokens_again_and_another_gives_others(client):
    ids = prompt(40, seed=9)
    one, two, three = (ask(client, ids, 16, temperature=1.0, seed=s)[0] for s in (1, 1, 2))
    assert one == two != three


def test_200_requests_cancelled_at_random_moments_leave_nothing(cluster):
    def cancelled(i):
        rng = random.Random(i)
        length = rng.randrange(10, 100) if i % 2 else rng.randrange(200, 600)
        request = request_of(prompt(length, seed=i), max_tokens=50, ignore_eos=True)
        with grpc.insecure_channel(cluster.address) as channel:
            call = inference_pb2_grpc.InferenceStub(channel).Generate(request)
            threading.Timer(rng.uniform(0, 3), call.cancel).start()
            answered = 0
            try:
                for event in call:
                    answered += len(event.chunk.token_ids)
            except grpc.RpcError:
                assert call.code() is grpc.StatusCode.CANCELLED
            return answered

    with ThreadPoolExecutor(16) as pool:
        answered = list(pool.map(cancelled, range(200)))
    assert any(answered), "some were cancelled in the middle of their answer"
    wait_quiet(cluster)


BAD = [
    (request_of(""), InvalidArgument, "text"),
    (request_of([]), InvalidArgument, "tokens.ids"),
    (inference_pb2.GenerateRequest(), InvalidArgument, "prompt"),
    (inference_pb2.GenerateRequest(chat=inference_pb2.ChatPrompt()), InvalidArgument, "chat.messages"),
    (request_of([("boss", "hi")]), InvalidArgument, "chat.messages[0].role"),
    (request_of([5] * 8192), InvalidArgument, "tokens.ids"),
    (request_of("word " * 200_000), InvalidArgument, "text"),
    (request_of([1, -4, 2]), InvalidArgument, "tokens.ids[1]"),
    (request_of([1, 2, VOCAB]), InvalidArgument, "tokens.ids[2]"),
    (request_of([1], max_tokens=0), InvalidArgument, "sampling.max_tokens"),
    (request_of([1], max_tokens=-3), InvalidArgument, "sampling.max_tokens"),
    (request_of([1], max_tokens=2**31 - 1), InvalidArgument, "sampling.max_tokens"),
    (request_of([1], temperature=float("nan")), InvalidArgument, "sampling.temperature"),
    (request_of([1], temperature=-1.0), InvalidArgument, "sampling.temperature"),
    (request_of([1], cache_salt="s" * 2000), InvalidArgument, "cache_salt"),
]


@pytest.mark.parametrize(("request_", "error", "field"), BAD, ids=lambda p: p if isinstance(p, str) else "")
def test_bad_input_is_refused_at_once_by_name(client, request_, error, field):
    started = time.monotonic()
    with pytest.raises(error) as caught:
        list(client.generate(request_, timeout_s=20))
    assert caught.value.field == field
    assert time.monotonic() - started < 2.0


def test_an_unknown_model_is_not_found(client):
    request = request_of([1, 2])
    request.model = "gpt-7"
    with pytest.raises(NotFound, match="gpt-7"):
        list(client.generate(request))


def test_bad_utf8_is_named(cluster):
    with grpc.insecure_channel(cluster.address) as channel:
        call = channel.unary_stream("/trunkline.v1.Inference/Generate", bytes, bytes)(b"\x1a\x03\xff\xfe\xfd")
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "text" in str(caught.value.details())


@pytest.mark.parametrize("victim", ["decode", "prefill"])
def test_a_killed_node_is_told_at_once_and_comes_back(cluster, client, victim):
    events = client.generate(request_of(prompt(2000, seed=random.randrange(10**6)), max_tokens=500, ignore_eos=True))
    started = next(events).started
    name = started.decode_node.name if victim == "decode" else started.prefill_node.name
    if victim == "decode":
        while not next(events).chunk.token_ids:
            pass
    cluster.kill(name)
    killed = time.monotonic()
    with pytest.raises(Unavailable, match=name):
        for _ in events:
            pass
    assert time.monotonic() - killed < 3.0
    if victim == "prefill":
        survivor, usage = ask(client, prompt(50, seed=77), 4)
        assert usage.prefill_node.name != name
        assert len(survivor) == 4
    cluster.restart(name)
    cluster.wait_ready()
    wait_quiet(cluster, timeout_s=6.0)
    assert len(ask(client, prompt(60, seed=78), 4)[0]) == 4


def test_idle_processes_use_under_two_percent_of_a_core(cluster):
    wait_quiet(cluster)
    processes = [psutil.Process(child.process.pid) for child in cluster.children.values()]
    before = [sum(p.cpu_times()[:2]) for p in processes]
    window = 5.0
    time.sleep(window)  # the measurement itself
    used = {p.pid: (sum(p.cpu_times()[:2]) - b) / window for p, b in zip(processes, before, strict=True)}
    assert max(used.values()) < 0.02, used
