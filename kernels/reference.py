"""The torch reference of each kernel. It defines what the Triton kernels must give, and it serves the CPU.

Shapes: T tokens of the step, S sequences, N blocks, L layers, B block size, H query heads, K kv heads, G = H/K
queries per kv head, D head dim, P tokens of a context.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trunkline.kernels.metadata import AttentionMetadata


def write_kv(k_TKD: Tensor, v_TKD: Tensor, kv_NLKBHD: Tensor, layer: int, meta: AttentionMetadata) -> None:
    """Writes the step's keys and values into their slots of `layer`. Mutates `kv_NLKBHD`, nothing but those slots."""
    block_size = kv_NLKBHD.shape[3]
    blocks, offsets = meta.slot_mapping_T // block_size, meta.slot_mapping_T % block_size
    kv_NLKBHD[blocks, layer, 0, offsets] = k_TKD
    kv_NLKBHD[blocks, layer, 1, offsets] = v_TKD


def paged_attention(q_THD: Tensor, kv_NLKBHD: Tensor, layer: int, meta: AttentionMetadata, scale: float) -> Tensor:
    """Causal attention of each token to its sequence's context, whose KV is written already; [T, H, D] like `q_THD`.

    A sequence's result depends on no other sequence of the step.
    """
    out_THD = torch.empty_like(q_THD)
    for s, context in enumerate(meta.context_lens):
        start, end = meta.query_starts[s], meta.query_starts[s + 1]
        k_KPD, v_KPD = _context(kv_NLKBHD, layer, meta.block_tables_SW[s], context)
        attend = _attend_one if end - start == 1 else _attend_chunk
        out_THD[start:end] = attend(q_THD[start:end], k_KPD, v_KPD, scale)
    return out_THD


def _context(kv_NLKBHD: Tensor, layer: int, table_W: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Keys and values [K, P, D] of one sequence."""
    block_size, heads, dim = kv_NLKBHD.shape[3:]
    table = table_W[: -(-context // block_size)]
    k_PKD = kv_NLKBHD[:, layer, 0].index_select(0, table).view(-1, heads, dim)[:context]
    v_PKD = kv_NLKBHD[:, layer, 1].index_select(0, table).view(-1, heads, dim)[:context]
    return k_PKD.transpose(0, 1), v_PKD.transpose(0, 1)


def _attend_one(q_1HD: Tensor, k_KPD: Tensor, v_KPD: Tensor, scale: float) -> Tensor:
    """One query: those of a kv head's group go in as rows, which is several times faster than enable_gqa."""
    _, heads, dim = q_1HD.shape
    q_KGD = q_1HD.view(k_KPD.shape[0], -1, dim)
    out_KGD = F.scaled_dot_product_attention(q_KGD[None], k_KPD[None], v_KPD[None], scale=scale)
    return out_KGD.reshape(1, heads, dim)


def _attend_chunk(q_THD: Tensor, k_KPD: Tensor, v_KPD: Tensor, scale: float) -> Tensor:
    """A run of queries at the end of the context; token i sees everything up to itself."""
    tokens, context = q_THD.shape[0], k_KPD.shape[1]
    causal_only = tokens == context
    mask_TP = None if causal_only else torch.ones(tokens, context, dtype=torch.bool).tril(context - tokens)
    out_HTD = F.scaled_dot_product_attention(
        q_THD.transpose(0, 1)[None],
        k_KPD[None],
        v_KPD[None],
        attn_mask=mask_TP,
        is_causal=causal_only,
        scale=scale,
        enable_gqa=True,
    )
    return out_HTD[0].transpose(0, 1)
