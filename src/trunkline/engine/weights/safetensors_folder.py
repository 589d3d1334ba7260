"""A Hugging Face folder: config.json and one or many safetensors files, memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trunkline.engine.models.config import ModelConfig
from trunkline.errors import InvalidArgument

_ARCHITECTURES = {"LlamaForCausalLM": "llama"}


class SafetensorsCheckpoint:
    """Raises InvalidArgument for a folder that lacks a file or holds what is not supported, naming it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = _read_config(folder)
        self.files = sorted(folder.glob("*.safetensors"))
        if not self.files:
            raise InvalidArgument("model", f"{folder} holds no .safetensors file")

    def load(self, dtype: torch.dtype, device: str, progress: Callable[[int, int], None]) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = {}
        for done, file in enumerate(self.files, 1):
            try:
                with safe_open(file, framework="pt", device=device) as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - not a mapping
                        weights[name] = tensors.get_tensor(name).to(dtype)
            except SafetensorError as error:
                raise InvalidArgument("model", f"{file} cannot be read: {error}") from error
            progress(done, len(self.files))
        return weights


def _read_config(folder: Path) -> ModelConfig:
    raw = _read_json(folder / "config.json")
    names = raw.get("architectures") or ["(none)"]
    if names[0] not in _ARCHITECTURES:
        supported = ", ".join(_ARCHITECTURES)
        raise InvalidArgument("model", f"architecture {names[0]!r} is not supported; {supported} is")
    for unsupported in ("attention_bias", "mlp_bias"):
        if raw.get(unsupported):
            raise InvalidArgument("model", f"{unsupported} is not supported")
    heads = raw["num_attention_heads"]
    # transformers 5 writes theta and scaling together as rope_parameters, earlier ones apart.
    rope = raw.get("rope_parameters") or {}
    scaling = raw.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
    return ModelConfig(
        architecture=_ARCHITECTURES[names[0]],
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        num_layers=raw["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        intermediate_size=raw["intermediate_size"],
        rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
        rope_theta=raw.get("rope_theta") or rope.get("rope_theta", 10_000.0),
        rope_scaling=scaling,
        max_position=raw["max_position_embeddings"],
        tie_word_embeddings=raw.get("tie_word_embeddings", False),
        eos_token_ids=_eos_token_ids(folder, raw),
    )


def _eos_token_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    generation = folder / "generation_config.json"
    found = (_read_json(generation) if generation.is_file() else {}).get("eos_token_id", config.get("eos_token_id"))
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list) else (found,)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument("model", f"{path} cannot be read: {error}") from error
