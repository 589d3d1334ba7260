"""Attention over paged KV. What callers use; which implementation serves them is dispatch's affair."""

from trunkline.kernels.dispatch import paged_attention, write_kv
from trunkline.kernels.metadata import AttentionMetadata

__all__ = ["AttentionMetadata", "paged_attention", "write_kv"]
