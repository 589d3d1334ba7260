"""What a model is, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trunkline.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and constants of a decoder-only transformer; names as in Hugging Face's config.json."""

    #: "llama"; see trunkline.engine.models.ARCHITECTURES.
    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    #: Longest sequence that the model was trained for.
    max_position: int
    #: None, or {"rope_type": "linear" | "llama3", ...}.
    rope_scaling: dict[str, Any] | None = field(default=None)
    tie_word_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise InvalidArgument(
                "num_key_value_heads", f"{self.num_kv_heads} does not divide {self.num_heads} attention heads"
            )
        if self.head_dim % 2:
            raise InvalidArgument("head_dim", f"must be even for rotary embeddings, not {self.head_dim}")
