"""The Triton kernels, equal to trunkline.kernels.reference.

One program computes attention for one (sequence, kv head, tile of queries): the G query heads that share a kv head
are rows of the same tile, so K and V are read once for all of them. Softmax runs online over tiles of the context
(Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, FlashAttention), in
float32. Decode is the case of one token per sequence, prefill that of many; both go through the block table (Kwon
et al. 2023, PagedAttention).

Shapes: T tokens of the step, S sequences, N blocks, L layers, B block size, H query heads, K kv heads, G = H/K, D head
dim, W table width.
"""

# pyright: reportArgumentType=false
# (a launch turns ints into constexpr, which its signature does not show)

from __future__ import annotations

from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from trunkline.kernels.metadata import AttentionMetadata

#: Rows (queries x group) of a tile at prefill, and context tokens of a tile. Powers of two, as tl.arange wants.
PREFILL_ROWS = 64
MIN_ROWS = 16  # tl.dot's smallest
CONTEXT_TILE = 32


def write_kv(k_TKD: Tensor, v_TKD: Tensor, kv_NLKBHD: Tensor, layer: int, meta: AttentionMetadata) -> None:
    """See reference.write_kv."""
    tokens, heads, dim = k_TKD.shape
    k_TKD, v_TKD = k_TKD.contiguous(), v_TKD.contiguous()
    width = triton.next_power_of_2(heads * dim)
    _write_kv_kernel[(tokens,)](
        k_TKD,
        v_TKD,
        kv_NLKBHD,
        meta.slot_mapping_T,
        kv_NLKBHD.stride(0),
        kv_NLKBHD.stride(2),
        kv_NLKBHD.stride(3),
        layer * kv_NLKBHD.stride(1),
        BLOCK=kv_NLKBHD.shape[3],
        ELEMENTS=heads * dim,
        WIDTH=width,
    )


@triton.jit
def _write_kv_kernel(
    k,
    v,
    kv,
    slots,
    block_stride,
    part_stride,
    token_stride,
    layer_offset,
    BLOCK: tl.constexpr,
    ELEMENTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token = tl.program_id(0)
    slot = tl.load(slots + token).to(tl.int64)  # a pool may pass 2**31 elements
    column = tl.arange(0, WIDTH)
    inside = column < ELEMENTS
    to = kv + (slot // BLOCK) * block_stride + layer_offset + (slot % BLOCK) * token_stride + column
    source = token.to(tl.int64) * ELEMENTS + column
    tl.store(to, tl.load(k + source, mask=inside), mask=inside)
    tl.store(to + part_stride, tl.load(v + source, mask=inside), mask=inside)


def paged_attention(q_THD: Tensor, kv_NLKBHD: Tensor, layer: int, meta: AttentionMetadata, scale: float) -> Tensor:
    """See reference.paged_attention."""
    _, heads, dim = q_THD.shape
    kv_heads = kv_NLKBHD.shape[4]
    group = heads // kv_heads
    q_THD = q_THD.contiguous()
    out_THD = torch.empty_like(q_THD)
    starts = meta.query_starts
    longest = max(end - start for start, end in pairwise(starts))
    group_rows = triton.next_power_of_2(group)
    tile_tokens = 1 if longest == 1 else max(1, PREFILL_ROWS // group_rows)
    tile_tokens = max(tile_tokens, MIN_ROWS // group_rows)
    grid = (len(starts) - 1, kv_heads, triton.cdiv(longest, tile_tokens))
    _paged_attention_kernel[grid](
        q_THD,
        kv_NLKBHD,
        out_THD,
        meta.query_starts_S1,
        meta.context_lens_S,
        meta.block_tables_SW,
        scale,
        q_THD.stride(0),
        kv_NLKBHD.stride(0),
        kv_NLKBHD.stride(2),
        kv_NLKBHD.stride(3),
        kv_NLKBHD.stride(4),
        layer * kv_NLKBHD.stride(1),
        meta.block_tables_SW.stride(0),
        BLOCK=kv_NLKBHD.shape[3],
        DIM=dim,
        DIM_PADDED=triton.next_power_of_2(dim),
        GROUP=group,
        GROUP_PADDED=group_rows,
        TILE_TOKENS=tile_tokens,
        TILE_CONTEXT=CONTEXT_TILE,
    )
    return out_THD


@triton.jit
def _paged_attention_kernel(
    q,
    kv,
    out,
    query_starts,
    context_lens,
    block_tables,
    scale,
    q_token_stride,
    block_stride,
    part_stride,
    token_stride,
    head_stride,
    layer_offset,
    table_stride,
    BLOCK: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TILE_CONTEXT: tl.constexpr,
):
    sequence, kv_head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(query_starts + sequence)
    count = tl.load(query_starts + sequence + 1) - start
    if tile * TILE_TOKENS >= count:
        return
    context = tl.load(context_lens + sequence)

    # Row r is query token r // GROUP_PADDED of this tile under head r % GROUP_PADDED of the group.
    row = tl.arange(0, TILE_TOKENS * GROUP_PADDED)
    token = tile * TILE_TOKENS + row // GROUP_PADDED
    member = row % GROUP_PADDED
    row_inside = (token < count) & (member < GROUP)
    position = context - count + token
    dim = tl.arange(0, DIM_PADDED)
    dim_inside = dim < DIM
    at = (start + token).to(tl.int64)[:, None] * q_token_stride
    at += (kv_head * GROUP + member)[:, None] * DIM + dim[None, :]
    tile_mask = row_inside[:, None] & dim_inside[None, :]
    queries = tl.load(q + at, mask=tile_mask, other=0.0).to(tl.float32) * scale

    best = tl.full((TILE_TOKENS * GROUP_PADDED,), float("-inf"), tl.float32)
    total = tl.zeros((TILE_TOKENS * GROUP_PADDED,), tl.float32)
    result = tl.zeros((TILE_TOKENS * GROUP_PADDED, DIM_PADDED), tl.float32)
    # Nothing after the tile's last token is ever seen.
    end = tl.minimum(context, context - count + (tile + 1) * TILE_TOKENS)
    base = kv + layer_offset + kv_head * head_stride
    for first in range(0, end, TILE_CONTEXT):
        place = first + tl.arange(0, TILE_CONTEXT)
        seen = place < end
        block = tl.load(block_tables + sequence * table_stride + place // BLOCK, mask=seen, other=0).to(tl.int64)
        where = block * block_stride + (place % BLOCK) * token_stride
        loaded = seen[:, None] & dim_inside[None, :]
        keys = tl.load(base + where[:, None] + dim[None, :], mask=loaded, other=0.0).to(tl.float32)
        values = tl.load(base + part_stride + where[:, None] + dim[None, :], mask=loaded, other=0.0).to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
        scores = tl.where(seen[None, :] & (place[None, :] <= position[:, None]), scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        # A row that has seen nothing yet keeps -inf; exp of (-inf) - (-inf) would be NaN.
        shift = tl.where(new_best == float("-inf"), 0.0, new_best)
        weights = tl.exp(scores - shift[:, None])
        decay = tl.exp(best - shift)
        total = total * decay + tl.sum(weights, 1)
        result = result * decay[:, None] + tl.dot(weights, values, input_precision="ieee")
        best = new_best
    result = result / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=tile_mask)
