"""The policy's promises, on drawn clusters."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import Unavailable
from trunkline.router.policy import PEER_MIN_BLOCKS, Candidate, choose, queue_bound

KIND = ("fp", 1, 16, 1024)


def node(i, role="prefill", hit=0, queued=0, decodes=0, kind=KIND):
    return Candidate(
        epoch=f"{role}{i}",
        name=f"{role}-{i}",
        address=f"h:{i}",
        role=role,
        kind=kind,
        hit_blocks=hit,
        queued_tokens=queued,
        decodes=decodes,
    )


def decide(candidates, tokens=1000, key=b"k", factor=1.5):
    return choose(candidates, prompt_tokens=tokens, block_size=16, key=key, balance_factor=factor)


def test_the_longest_prefix_wins_while_queues_are_even():
    assert decide([node(0, hit=3), node(1, hit=9), node(0, "decode")]).prefill == node(1, hit=9)


def test_affinity_yields_to_a_long_queue():
    decision = decide([node(0, hit=60, queued=50_000), node(1), node(0, "decode")])
    assert decision.prefill == node(1)
    assert decision.peer == node(0, hit=60, queued=50_000), "its prefix is pulled instead"


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20_000)), min_size=1, max_size=8),
    st.integers(1, 4000),
    st.floats(1, 4),
)
def test_no_node_passes_the_bound_while_another_is_within_it(nodes, tokens, factor):
    prefillers = [node(i, hit=hit, queued=queued) for i, (hit, queued) in enumerate(nodes)]
    chosen = decide([*prefillers, node(0, "decode")], tokens, factor=factor).prefill
    assert chosen is not None
    bound = queue_bound(prefillers, tokens, factor)

    def after(n):
        return n.queued_tokens + max(1, tokens - 16 * n.hit_blocks)

    assert after(chosen) <= bound or all(after(n) > bound for n in prefillers)


def test_a_burst_of_distinct_cold_prompts_does_not_herd():
    """64 prompts over 4 nodes whose reported load never changes: only what this router counts itself."""
    queued = [0, 0, 0, 0]
    counts = [0, 0, 0, 0]
    for p in range(64):
        nodes = [node(i, queued=queued[i]) for i in range(4)]
        chosen = decide([*nodes, node(0, "decode")], key=sha256(bytes([p])).digest()).prefill
        assert chosen is not None
        i = int(chosen.name[-1])
        queued[i] += 1000
        counts[i] += 1
    assert max(counts) <= 64 * 0.35


def test_nodes_that_differ_are_never_paired():
    other = ("other", 1, 16, 1024)
    with pytest.raises(Unavailable):
        decide([node(0), node(0, "decode", kind=other)])
    decision = decide([node(0), node(1, hit=50, kind=other), node(0, "decode"), node(1, "decode", kind=other)])
    assert decision.prefill is not None
    assert decision.prefill.kind == decision.decode.kind


def test_a_node_of_both_roles_serves_alone():
    decision = decide([node(0, "both")])
    assert decision.prefill is None
    assert decision.decode == node(0, "both")


def test_the_least_busy_decode_node_is_taken_and_of_equals_the_warmer_one():
    nodes = [node(0, "decode", decodes=3, hit=9), node(1, "decode", decodes=1), node(2, "decode", decodes=1, hit=2)]
    assert decide([node(0), *nodes]).decode == nodes[2]


@pytest.mark.parametrize("more", [PEER_MIN_BLOCKS - 1, PEER_MIN_BLOCKS])
def test_a_peer_is_named_only_for_enough_blocks(more):
    decision = decide([node(0, hit=2), node(0, "decode", hit=2 + more)])
    assert (decision.peer is not None) == (more >= PEER_MIN_BLOCKS)
