"""The pieces that decoder-only models share: norm, attention over paged KV, gated MLP.

Each takes its weights by name from a `Weights` mapping in Hugging Face's names. Inference only.

Shapes: T tokens, E hidden, H query heads, K kv heads, D head dim, I intermediate.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from trunkline.engine.models.config import ModelConfig
from trunkline.engine.models.rope import rotate
from trunkline.kernels import AttentionMetadata, paged_attention, write_kv

Weights = Mapping[str, Tensor]


class RMSNorm:
    """Zhang and Sennrich 2019. In float32 inside, as Llama was trained; the weight multiplies in the model's dtype."""

    def __init__(self, weight_E: Tensor, eps: float) -> None:
        self._weight_E = weight_E
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._eps)
        return self._weight_E * normed.to(x.dtype)


class Attention:
    """Grouped-query attention (Ainslie et al. 2023) that writes its K and V into blocks and reads through tables."""

    def __init__(self, config: ModelConfig, layer: int, weights: Weights) -> None:
        prefix = f"model.layers.{layer}.self_attn."
        self._layer = layer
        self._heads, self._kv_heads, self._dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._scale = config.head_dim**-0.5
        self._qkv = torch.cat([weights[prefix + f"{part}_proj.weight"] for part in "qkv"])
        self._out = weights[prefix + "o_proj.weight"]

    def __call__(self, x_TE: Tensor, rope: tuple[Tensor, Tensor], kv_NLKBHD: Tensor, meta: AttentionMetadata) -> Tensor:
        sizes = [self._heads, self._kv_heads, self._kv_heads]
        mixed = F.linear(x_TE, self._qkv).view(-1, sum(sizes), self._dim)
        q_THD, k_TKD, v_TKD = mixed.split(sizes, dim=1)
        q_THD, k_TKD = rotate(q_THD, *rope), rotate(k_TKD, *rope)
        write_kv(k_TKD, v_TKD, kv_NLKBHD, self._layer, meta)
        out_THD = paged_attention(q_THD, kv_NLKBHD, self._layer, meta, self._scale)
        return F.linear(out_THD.flatten(1), self._out)


class GatedMLP:
    """SwiGLU (Shazeer 2020); gate and up are one matrix."""

    def __init__(self, layer: int, weights: Weights) -> None:
        prefix = f"model.layers.{layer}.mlp."
        self._gate_up = torch.cat([weights[prefix + "gate_proj.weight"], weights[prefix + "up_proj.weight"]])
        self._down = weights[prefix + "down_proj.weight"]

    def __call__(self, x_TE: Tensor) -> Tensor:
        gate_TI, up_TI = F.linear(x_TE, self._gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate_TI) * up_TI, self._down)
