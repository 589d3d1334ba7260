"""The name of everything that makes KV interchangeable between nodes."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256

from trunkline.engine.models.config import ModelConfig

#: Grows when the order or meaning of a block's bytes changes (trunkline.engine.kv_store).
LAYOUT_VERSION = 1


def fingerprint(config: ModelConfig, digest: str, *, dtype_name: str, block_size: int) -> bytes:
    """SHA-256 (32 bytes) over a canonical encoding of model, weights (`digest`), KV dtype, block size and layout."""
    what = {
        "layout": LAYOUT_VERSION,
        "config": asdict(config),
        "weights": digest,
        "dtype": dtype_name,
        "block_size": block_size,
    }
    return sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).digest()
