"""A small random Llama in Hugging Face's format, made on the spot: for tests that need a model, not its wisdom."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers

from trunkline.model_store import ModelLocation

VOCAB = 300
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONTROLS = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def write_tiny_llama(folder: Path, *, seed: int = 0, tied: bool = True, context: int = 512) -> ModelLocation:
    """Writes config.json, model.safetensors and a byte-level tokenizer below `folder`: 2 layers, 6 heads over 2."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": context,
        "tie_word_embeddings": tied,
        "eos_token_id": 256,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(config, seed), folder / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(folder)
    return ModelLocation(folder.name, folder)


def _weights(config: dict, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * 2 / columns**0.5

    weights = {"model.embed_tokens.weight": torch.randn(VOCAB, hidden, generator=generator)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes = {"q": (q, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, q)}
        weights |= {f"{layer}self_attn.{n}_proj.weight": matrix(*shape) for n, shape in shapes.items()}
        shapes = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
        weights |= {f"{layer}mlp.{n}_proj.weight": matrix(*shape) for n, shape in shapes.items()}
        weights[layer + "input_layernorm.weight"] = 1 + 0.1 * torch.randn(hidden, generator=generator)
        weights[layer + "post_attention_layernorm.weight"] = 1 + 0.1 * torch.randn(hidden, generator=generator)
    weights["model.norm.weight"] = torch.ones(hidden)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(VOCAB, hidden)
    return weights


def _write_tokenizer(folder: Path) -> None:
    """Every byte is a token; the controls follow from id 256 on."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {char: i for i, char in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(c, special=True, normalized=False) for c in CONTROLS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": TEMPLATE, "eos_token": CONTROLS[0], "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
