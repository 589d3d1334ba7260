"""GGUF: one file, quantised; every tensor is dequantised as it is read.

llama.cpp keeps Llama's q and k rows in the interleaved order of its own rotary kernel; they are put back here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from torch import Tensor

from trunkline.engine.models.config import ModelConfig
from trunkline.errors import InvalidArgument

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GGUFCheckpoint:
    """Raises InvalidArgument for a file that is no GGUF or holds what is not supported, naming it."""

    def __init__(self, path: Path) -> None:
        self.files = [path]
        try:
            self._reader = gguf.GGUFReader(path)
        except (ValueError, OSError, IndexError) as error:
            raise InvalidArgument("model", f"{path} cannot be read as GGUF: {error}") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.config = self._read_config()

    def field(self, key: str, default: Any = None) -> Any:
        """A metadata value, or `default`."""
        found = self._reader.fields.get(key)
        return default if found is None else found.contents()

    def _read_config(self) -> ModelConfig:
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise InvalidArgument("model", f"architecture {architecture!r} in GGUF is not supported; llama is")
        if "rope_freqs.weight" in self._tensors:
            raise InvalidArgument("rope_scaling", "GGUF files with a rope_freqs tensor are not supported")
        heads = self._required("llama.attention.head_count")
        hidden = self._required("llama.embedding_length")
        kind = self.field("llama.rope.scaling.type", "none")
        scaling = None
        if kind != "none":
            scaling = {"rope_type": kind, "factor": self.field("llama.rope.scaling.factor", 1.0)}
        return ModelConfig(
            architecture="llama",
            vocab_size=int(self._tensors["token_embd.weight"].shape[1]),
            hidden_size=hidden,
            num_layers=self._required("llama.block_count"),
            num_heads=heads,
            num_kv_heads=self.field("llama.attention.head_count_kv", heads),
            head_dim=self.field("llama.attention.key_length", hidden // heads),
            intermediate_size=self._required("llama.feed_forward_length"),
            rms_norm_eps=float(np.float32(self._required("llama.attention.layer_norm_rms_epsilon"))),
            rope_theta=float(self.field("llama.rope.freq_base", 10_000.0)),
            rope_scaling=scaling,
            max_position=self._required("llama.context_length"),
            tie_word_embeddings="output.weight" not in self._tensors,
            eos_token_ids=self._eos_token_ids(),
        )

    def _eos_token_ids(self) -> tuple[int, ...]:
        keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        return tuple(dict.fromkeys(int(self.field(key)) for key in keys if self.field(key) is not None))

    def _required(self, key: str) -> Any:
        value = self.field(key)
        if value is None:
            raise InvalidArgument("model", f"{self.files[0]} lacks the GGUF field {key!r}")
        return value

    def load(self, dtype: torch.dtype, device: str, progress: Callable[[int, int], None]) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = {}
        for done, (name, tensor) in enumerate(self._tensors.items(), 1):
            values = dequantize(tensor.data, tensor.tensor_type)
            weight = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
            canonical = _canonical(name)
            if "q_proj" in canonical:
                weight = _unpermute(weight, self.config.num_heads)
            if "k_proj" in canonical:
                weight = _unpermute(weight, self.config.num_kv_heads)
            weights[canonical] = weight.to(device=device, dtype=dtype)
            progress(done, len(self._tensors))
        return weights


def _canonical(name: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight."""
    parts = name.split(".")
    prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
    stem = parts[-2]
    if stem not in _NAMES or parts[-1] != "weight":
        raise InvalidArgument("model", f"GGUF tensor {name!r} is not supported")
    return f"{prefix}{_NAMES[stem]}.weight"


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head from interleaved pairs back to two halves."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
