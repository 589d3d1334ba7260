"""Rotary position embeddings (Su et al. 2021, RoFormer), in the half-split form of Llama checkpoints.

Shapes: T tokens, H heads, D head dim, M positions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trunkline.engine.models.config import ModelConfig
from trunkline.errors import InvalidArgument


class RotaryEmbedding:
    """Tables of cos and sin for every position, float32, made once."""

    def __init__(self, config: ModelConfig, device: str = "cpu") -> None:
        angles_MD = torch.outer(torch.arange(config.max_position, dtype=torch.float32), inverse_frequencies(config))
        self._cos_M1D = angles_MD.cos().repeat(1, 2)[:, None].to(device)
        self._sin_M1D = angles_MD.sin().repeat(1, 2)[:, None].to(device)

    def at(self, positions_T: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin [T, 1, D] in `dtype`, for rotate()."""
        return self._cos_M1D[positions_T].to(dtype), self._sin_M1D[positions_T].to(dtype)


def rotate(x_THD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
    """Queries or keys [T, H, D], turned to their positions."""
    first, second = x_THD.chunk(2, dim=-1)
    return x_THD * cos_T1D + torch.cat((-second, first), dim=-1) * sin_T1D


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """[D/2] float32. Raises InvalidArgument for a rope scaling that is not supported, naming it."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / float(scaling["factor"])
    if kind == "llama3":
        return _llama3(frequencies, scaling)
    raise InvalidArgument("rope_scaling", f"{kind!r} is not supported; default, linear and llama3 are")


def _llama3(frequencies: Tensor, scaling: dict[str, float]) -> Tensor:
    """Llama 3.1's rule: long wavelengths are slowed by `factor`, short ones kept, those between blended."""
    factor, old = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    wavelengths = 2 * math.pi / frequencies
    blend = ((old / wavelengths - low) / (high - low)).clamp(0, 1)
    return frequencies / factor * (1 - blend) + frequencies * blend
