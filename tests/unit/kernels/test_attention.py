"""Torch reference against float64, Triton (interpreted) against both, on the shapes that go wrong."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.errors import InvalidArgument
from trunkline.kernels import paged_attention, write_kv
from trunkline.testing.attention_cases import LAYER, make_problem

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
BACKENDS = ["torch", "triton"]

BATCHES = {
    "one token, alone": [(0, 1)],
    "decode at a block's start, middle and end": [(16, 1), (5, 1), (15, 1), (31, 1)],
    "eight decodes of all lengths": [(n * 9, 1) for n in range(8)],
    "cold prompts, partial last blocks": [(0, 17), (0, 16), (0, 15)],
    "chunks after a prefix": [(16, 20), (33, 7), (40, 16)],
    "decodes and chunks mixed": [(30, 1), (0, 19), (18, 1), (20, 13)],
}
SHAPES = [(1, 2, 64), (3, 3, 64), (4, 2, 128), (8, 1, 64), (3, 1, 128), (2, 1, 96)]


def check(problem, backend):
    before = problem.kv_NLKBHD.clone()
    write_kv(problem.k_TKD, problem.v_TKD, problem.kv_NLKBHD, LAYER, problem.meta, backend)
    out = paged_attention(problem.q_THD, problem.kv_NLKBHD, LAYER, problem.meta, problem.scale, backend)
    error = (out.double().cpu() - problem.expected_THD).abs().max().item()
    assert error <= TOLERANCE[problem.q_THD.dtype]
    check_only_slots_written(problem, before)


def check_only_slots_written(problem, before):
    """All but the step's slots is as it was, NaN where it was NaN; the slots hold the keys and values to the bit."""
    block_size = before.shape[3]
    blocks, offsets = problem.meta.slot_mapping_T // block_size, problem.meta.slot_mapping_T % block_size
    after = problem.kv_NLKBHD.clone()
    assert torch.equal(after[blocks, LAYER, 0, offsets], problem.k_TKD)
    assert torch.equal(after[blocks, LAYER, 1, offsets], problem.v_TKD)
    after[blocks, LAYER, :, offsets] = before[blocks, LAYER, :, offsets]
    assert torch.equal(after.nan_to_num(7.0), before.nan_to_num(7.0))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize(("group", "kv_heads", "dim"), SHAPES)
def test_equals_float64(backend, lengths, group, kv_heads, dim):
    check(make_problem(lengths, group=group, kv_heads=kv_heads, dim=dim), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES.keys())
def test_equals_float64_in_bfloat16(backend, lengths):
    check(make_problem(lengths, group=3, kv_heads=3, dim=64, dtype=torch.bfloat16), backend)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=8),
    group=st.sampled_from([1, 3, 4]),
    kv_heads=st.integers(1, 3),
    dim=st.sampled_from([64, 128]),
    block_size=st.sampled_from([4, 16, 32]),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_float64_on_drawn_shapes(backend, lengths, group, kv_heads, dim, block_size, seed):
    problem = make_problem(lengths, group=group, kv_heads=kv_heads, dim=dim, block_size=block_size, seed=seed)
    check(problem, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sequence_does_not_depend_on_its_neighbours(backend):
    lengths = [(30, 1), (0, 19), (18, 1)]
    together = make_problem(lengths, group=3, kv_heads=3, dim=64)
    write_kv(together.k_TKD, together.v_TKD, together.kv_NLKBHD, LAYER, together.meta, backend)
    out = paged_attention(together.q_THD, together.kv_NLKBHD, LAYER, together.meta, together.scale, backend)
    for s in range(len(lengths)):
        start, end = together.meta.query_starts[s : s + 2]
        alone = type(together.meta).build(
            query_starts=[0, end - start],
            context_lens=[sum(lengths[s])],
            block_tables=[together.meta.block_tables_SW[s].tolist()],
            block_size=16,
            device=torch.device("cpu"),
        )
        part = paged_attention(together.q_THD[start:end], together.kv_NLKBHD, LAYER, alone, together.scale, backend)
        assert torch.equal(part, out[start:end])


def test_an_unknown_backend_is_named():
    problem = make_problem([(0, 1)], group=1, kv_heads=1, dim=64)
    with pytest.raises(InvalidArgument, match="TRUNKLINE_KERNELS"):
        write_kv(problem.k_TKD, problem.v_TKD, problem.kv_NLKBHD, LAYER, problem.meta, "cuda")
