"""Weights from disk: the format is found out here, each format is one file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from trunkline.engine.models import ARCHITECTURES, LlamaModel, ModelConfig
from trunkline.engine.weights.gguf_file import GGUFCheckpoint
from trunkline.engine.weights.safetensors_folder import SafetensorsCheckpoint
from trunkline.errors import InvalidArgument
from trunkline.model_store import ModelLocation, store_folder

Progress = Callable[[int, int], None]


class Checkpoint(Protocol):
    """One model on disk."""

    config: ModelConfig
    #: The files that the digest covers, in a fixed order.
    files: list[Path]

    def load(self, dtype: torch.dtype, device: str, progress: Progress) -> Mapping[str, Tensor]:
        """All weights in Hugging Face's names; `progress` gets (tensors done, tensors in all)."""
        ...


def open_checkpoint(location: ModelLocation) -> Checkpoint:
    """Reads the headers only. Raises InvalidArgument for a format or architecture that is not supported."""
    if location.path.suffix == ".gguf":
        return GGUFCheckpoint(location.path)
    if (location.path / "config.json").is_file():
        return SafetensorsCheckpoint(location.path)
    raise InvalidArgument("model", f"{location.path} is neither a .gguf file nor a folder with a config.json")


def load_config(location: ModelLocation) -> ModelConfig:
    return open_checkpoint(location).config


def load_model(
    location: ModelLocation,
    *,
    dtype: torch.dtype,
    device: str = "cpu",
    progress: Progress = lambda done, total: None,
) -> LlamaModel:
    """The model, ready for inference, its weights in `dtype`."""
    checkpoint = open_checkpoint(location)
    weights = checkpoint.load(dtype, device, progress)
    try:
        return ARCHITECTURES[checkpoint.config.architecture](checkpoint.config, weights)
    except KeyError as error:
        raise InvalidArgument("model", f"{location.path} lacks the tensor {error.args[0]!r}") from error


def weights_digest(location: ModelLocation) -> str:
    """SHA-256 (hex) over the weight files' bytes; remembered in the store by path, size and time of change."""
    files = open_checkpoint(location).files
    stats = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    key = hashlib.sha256(repr(stats).encode()).hexdigest()
    remembered = store_folder() / "digests" / key
    if remembered.is_file():
        return remembered.read_text()
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    remembered.parent.mkdir(parents=True, exist_ok=True)
    partial = remembered.with_suffix(f".{id(total)}.partial")
    partial.write_text(total.hexdigest())
    partial.replace(remembered)
    return total.hexdigest()
