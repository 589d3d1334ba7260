"""A node's KV memory: one tensor, one contiguous piece per block, and the bytes' digests.

Knows bytes and shapes; who uses which block is the pool's affair.

Shapes: N blocks, L layers, 2 for K and V, B block size, K kv heads, D head_dim.
"""

from __future__ import annotations

import logging

import psutil
import torch
import xxhash

from trunkline.config import EngineConfig
from trunkline.engine.models import ModelConfig
from trunkline.errors import InvalidArgument

log = logging.getLogger(__name__)

DEFAULT_SHARE_OF_FREE_MEMORY = 0.25
# Registering memory with NIXL touches all of it, about a second per GiB and process.
DEFAULT_MAX_BYTES = 1 << 30


def block_bytes(model: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Size of one block in bytes."""
    return model.num_layers * 2 * block_size * model.num_kv_heads * model.head_dim * dtype.itemsize


def num_blocks(config: EngineConfig, bytes_per_block: int) -> int:
    """Blocks of the pool that `config` asks for. Raises InvalidArgument when none fits or memory lacks the room."""
    available = psutil.virtual_memory().available
    if config.num_blocks is not None:
        blocks = config.num_blocks
    else:
        default = min(int(available * DEFAULT_SHARE_OF_FREE_MEMORY), DEFAULT_MAX_BYTES)
        blocks = (config.pool_bytes or default) // bytes_per_block
    if blocks < 1:
        raise InvalidArgument("pool_bytes", f"a block takes {bytes_per_block} bytes; not one fits")
    if blocks * bytes_per_block > available:
        raise InvalidArgument(
            "num_blocks", f"{blocks} blocks take {blocks * bytes_per_block} bytes; {available} are free here"
        )
    return blocks


class KvStore:
    """`kv_NLKBHD`: [N, L, 2, B, K, D] of `dtype`, zeroed. The engine's step and pulls write it, under their holds."""

    def __init__(self, model: ModelConfig, *, blocks: int, block_size: int, dtype: torch.dtype) -> None:
        shape = (blocks, model.num_layers, 2, block_size, model.num_kv_heads, model.head_dim)
        self.kv_NLKBHD = torch.zeros(shape, dtype=dtype)
        self.block_bytes = block_bytes(model, block_size, dtype)
        self._bytes = self.kv_NLKBHD.view(torch.uint8).view(blocks, self.block_bytes).numpy()

    @property
    def base_address(self) -> int:
        """Address of block 0; block i begins i * block_bytes after it."""
        return self.kv_NLKBHD.data_ptr()

    @property
    def num_bytes(self) -> int:
        return self._bytes.nbytes

    def digest(self, block_id: int) -> bytes:
        """XXH3-128 (16 bytes) of the block as it is now. The caller keeps it from being written meanwhile."""
        return xxhash.xxh3_128_digest(self._bytes[block_id].data)
