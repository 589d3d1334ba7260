"""Model architectures: one small file each over shared layers, registered here."""

from trunkline.engine.models.config import ModelConfig
from trunkline.engine.models.llama import LlamaModel

#: By ModelConfig.architecture.
ARCHITECTURES = {"llama": LlamaModel}

__all__ = ["ARCHITECTURES", "LlamaModel", "ModelConfig"]
