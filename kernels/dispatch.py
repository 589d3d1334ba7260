"""Which implementation of a kernel runs: Triton on GPUs, the torch reference on CPUs.

TRUNKLINE_KERNELS=torch|triton forces one; Triton on CPU tensors needs TRITON_INTERPRET=1 and is for tests.
"""

from __future__ import annotations

import os
from types import ModuleType

from torch import Tensor

from trunkline.errors import InvalidArgument
from trunkline.kernels import reference
from trunkline.kernels.metadata import AttentionMetadata

BACKENDS = ("torch", "triton")


def _implementation(device: str, backend: str | None) -> ModuleType:
    name = backend or os.environ.get("TRUNKLINE_KERNELS") or ("triton" if device == "cuda" else "torch")
    if name == "torch":
        return reference
    if name == "triton":
        # A CPU node never needs Triton, whose import takes a second.
        from trunkline.kernels import triton_kernels

        return triton_kernels
    raise InvalidArgument("TRUNKLINE_KERNELS", f"must be one of {', '.join(BACKENDS)}, not {name!r}")


def write_kv(
    k_TKD: Tensor, v_TKD: Tensor, kv_NLKBHD: Tensor, layer: int, meta: AttentionMetadata, backend: str | None = None
) -> None:
    """See reference.write_kv."""
    _implementation(kv_NLKBHD.device.type, backend).write_kv(k_TKD, v_TKD, kv_NLKBHD, layer, meta)


def paged_attention(
    q_THD: Tensor, kv_NLKBHD: Tensor, layer: int, meta: AttentionMetadata, scale: float, backend: str | None = None
) -> Tensor:
    """See reference.paged_attention."""
    return _implementation(q_THD.device.type, backend).paged_attention(q_THD, kv_NLKBHD, layer, meta, scale)
