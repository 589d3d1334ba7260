"""The Llama architecture (Touvron et al. 2023): pre-norm, RoPE, grouped-query attention, SwiGLU.

Shapes: T tokens, E hidden, R rows whose logits are wanted, V vocabulary; KV as in trunkline.engine.kv_store.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from trunkline.engine.models.config import ModelConfig
from trunkline.engine.models.layers import Attention, GatedMLP, RMSNorm, Weights
from trunkline.engine.models.rope import RotaryEmbedding
from trunkline.kernels import AttentionMetadata


class LlamaLayer:
    def __init__(self, config: ModelConfig, layer: int, weights: Weights) -> None:
        prefix = f"model.layers.{layer}."
        self._attention_norm = RMSNorm(weights[prefix + "input_layernorm.weight"], config.rms_norm_eps)
        self._attention = Attention(config, layer, weights)
        self._mlp_norm = RMSNorm(weights[prefix + "post_attention_layernorm.weight"], config.rms_norm_eps)
        self._mlp = GatedMLP(layer, weights)

    def __call__(self, x_TE: Tensor, rope: tuple[Tensor, Tensor], kv_NLKBHD: Tensor, meta: AttentionMetadata) -> Tensor:
        x_TE = x_TE + self._attention(self._attention_norm(x_TE), rope, kv_NLKBHD, meta)
        return x_TE + self._mlp(self._mlp_norm(x_TE))


class LlamaModel:
    """Holds its weights; all state of requests is in the KV blocks."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        """`weights` in Hugging Face's names, all of one dtype. Raises KeyError for one that is missing."""
        self.config = config
        self._embedding_VE = weights["model.embed_tokens.weight"]
        self._layers = [LlamaLayer(config, i, weights) for i in range(config.num_layers)]
        self._norm = RMSNorm(weights["model.norm.weight"], config.rms_norm_eps)
        self._head_VE = self._embedding_VE if config.tie_word_embeddings else weights["lm_head.weight"]
        self._rope = RotaryEmbedding(config, str(self._embedding_VE.device))

    def forward(
        self,
        token_ids_T: Tensor,
        positions_T: Tensor,
        kv_NLKBHD: Tensor,
        meta: AttentionMetadata,
        logits_rows: list[int],
    ) -> Tensor:
        """Computes the step's tokens, writing their K and V; returns float32 logits [R, V] of `logits_rows`."""
        x_TE = self._embedding_VE[token_ids_T]
        rope = self._rope.at(positions_T, x_TE.dtype)
        for layer in self._layers:
            x_TE = layer(x_TE, rope, kv_NLKBHD, meta)
        return F.linear(self._norm(x_TE[logits_rows]), self._head_VE).float()
