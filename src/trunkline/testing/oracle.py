"""Hugging Face transformers on the same weights: the answer that Trunkline must give. Float32, greedy.

Needs the dev extras. The oracle shares no code with the engine but the reading of GGUF.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trunkline.engine.weights import open_checkpoint
from trunkline.model_store import ModelLocation


class Oracle:
    def __init__(self, location: ModelLocation) -> None:
        checkpoint = open_checkpoint(location)
        c = checkpoint.config
        config = LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            num_hidden_layers=c.num_layers,
            num_attention_heads=c.num_heads,
            num_key_value_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            intermediate_size=c.intermediate_size,
            rms_norm_eps=c.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta, **(c.rope_scaling or {})},
            max_position_embeddings=c.max_position,
            tie_word_embeddings=c.tie_word_embeddings,
        )
        self.model = LlamaForCausalLM(config).eval()
        weights = dict(checkpoint.load(torch.float32, "cpu", lambda done, total: None))
        if c.tie_word_embeddings:
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        self.model.load_state_dict(weights)

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """[tokens, vocab] float32."""
        return self.model(torch.tensor([list(token_ids)])).logits[0]

    @torch.inference_mode()
    def greedy(self, token_ids: Sequence[int], count: int) -> list[int]:
        """`count` tokens, end-of-sequence tokens not heeded."""
        prompt = torch.tensor([list(token_ids)])
        out = self.model.generate(  # type: ignore[attr-defined]
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=count,
            min_new_tokens=count,
            pad_token_id=0,
            eos_token_id=None,
        )
        return out[0, len(token_ids) :].tolist()
