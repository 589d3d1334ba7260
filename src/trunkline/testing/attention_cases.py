"""Attention problems with known answers, for kernels on any device.

Shapes as in trunkline.kernels.reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trunkline.kernels import AttentionMetadata

LAYERS = 2
LAYER = 1


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sequences with their queries, a KV cache whose unused slots hold NaN, and the float64 answer."""

    q_THD: Tensor
    k_TKD: Tensor
    v_TKD: Tensor
    #: All but the step's own keys and values is written.
    kv_NLKBHD: Tensor
    meta: AttentionMetadata
    expected_THD: Tensor

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.q_THD.shape[-1])


def make_problem(
    lengths: Sequence[tuple[int, int]],
    *,
    group: int,
    kv_heads: int,
    dim: int,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Problem:
    """`lengths`: (tokens before, tokens of this step) of each sequence. Blocks are dealt out at random."""
    generator = torch.Generator().manual_seed(seed)
    tables, free = [], torch.randperm(sum(-(-(p + t) // block_size) for p, t in lengths) + 3, generator=generator)
    kv_NLKBHD = torch.full((len(free), LAYERS, 2, block_size, kv_heads, dim), float("nan"), dtype=dtype)
    taken = free.tolist()
    queries, keys, values, expected, starts = [], [], [], [], [0]
    for before, now in lengths:
        table = [taken.pop() for _ in range(-(-(before + now) // block_size))]
        tables.append(table)
        starts.append(starts[-1] + now)
        q, k, v = (
            torch.randn(n, heads, dim, generator=generator).to(dtype)
            for n, heads in ((now, group * kv_heads), (before + now, kv_heads), (before + now, kv_heads))
        )
        for position in range(before):
            kv_NLKBHD[table[position // block_size], LAYER, 0, position % block_size] = k[position]
            kv_NLKBHD[table[position // block_size], LAYER, 1, position % block_size] = v[position]
        queries.append(q)
        keys.append(k[before:])
        values.append(v[before:])
        expected.append(_attention_float64(q.double(), k.double(), v.double()))
    meta = AttentionMetadata.build(
        query_starts=starts,
        context_lens=[before + now for before, now in lengths],
        block_tables=tables,
        block_size=block_size,
        device=torch.device(device),
    )
    return Problem(
        q_THD=torch.cat(queries).to(device),
        k_TKD=torch.cat(keys).to(device),
        v_TKD=torch.cat(values).to(device),
        kv_NLKBHD=kv_NLKBHD.to(device),
        meta=meta,
        expected_THD=torch.cat(expected),
    )


def _attention_float64(q_THD: Tensor, k_PKD: Tensor, v_PKD: Tensor) -> Tensor:
    """The definition, written out: softmax over all tokens up to and with one's own."""
    tokens, heads, dim = q_THD.shape
    context, kv_heads, _ = k_PKD.shape
    out = torch.empty_like(q_THD)
    for t in range(tokens):
        seen = context - tokens + t + 1
        for h in range(heads):
            kv_head = h // (heads // kv_heads)
            weights = torch.softmax(k_PKD[:seen, kv_head] @ q_THD[t, h] / math.sqrt(dim), dim=0)
            out[t, h] = weights @ v_PKD[:seen, kv_head]
    return out
