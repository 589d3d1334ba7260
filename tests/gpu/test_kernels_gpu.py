"""The Triton kernels compiled for a real GPU."""

import pytest
import torch

from trunkline.kernels import paged_attention, write_kv
from trunkline.testing.attention_cases import LAYER, make_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[(30, 1), (0, 19), (18, 1), (20, 13)], [(n * 9, 1) for n in range(8)]])
@pytest.mark.parametrize(("group", "kv_heads", "dim"), [(3, 3, 64), (4, 2, 128), (8, 1, 64)])
def test_equals_float64(dtype, lengths, group, kv_heads, dim):
    problem = make_problem(lengths, group=group, kv_heads=kv_heads, dim=dim, dtype=dtype, device="cuda")
    write_kv(problem.k_TKD, problem.v_TKD, problem.kv_NLKBHD, LAYER, problem.meta)
    out = paged_attention(problem.q_THD, problem.kv_NLKBHD, LAYER, problem.meta, problem.scale)
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    assert (out.double().cpu() - problem.expected_THD).abs().max().item() <= tolerance
