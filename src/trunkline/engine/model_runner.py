"""One step's arithmetic: chunks to tensors, the model's forward pass, new tokens.

Knows the model and the KV memory; which chunks, and what becomes of the tokens, is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from trunkline.engine.kv_store import KvStore
from trunkline.engine.models import ModelConfig
from trunkline.engine.sampler import Draw, sample
from trunkline.engine.scheduler import Chunk
from trunkline.errors import TrunklineError
from trunkline.kernels import AttentionMetadata


class Model(Protocol):
    """A causal language model over paged KV; see trunkline.engine.models."""

    config: ModelConfig

    def forward(
        self,
        token_ids_T: Tensor,
        positions_T: Tensor,
        kv_NLKBHD: Tensor,
        meta: AttentionMetadata,
        logits_rows: list[int],
    ) -> Tensor: ...


class ModelRunner:
    def __init__(self, model: Model, store: KvStore, block_size: int) -> None:
        self._model = model
        self._store = store
        self._block_size = block_size

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk]) -> list[int | TrunklineError]:
        """Computes the chunks' KV into their blocks; a token (or its failure) for each chunk that samples, in order."""
        token_ids: list[int] = []
        positions: list[int] = []
        starts = [0]
        rows: list[int] = []
        draws: list[Draw] = []
        for chunk in chunks:
            end = chunk.start + chunk.count
            token_ids += chunk.request.token_ids[chunk.start : end]
            positions += range(chunk.start, end)
            starts.append(len(token_ids))
            if chunk.samples:
                rows.append(len(token_ids) - 1)
                sampling = chunk.request.sampling
                draws.append(Draw(temperature=sampling.temperature, seed=sampling.seed, position=end))
        meta = AttentionMetadata.build(
            query_starts=starts,
            context_lens=[chunk.start + chunk.count for chunk in chunks],
            block_tables=[chunk.request.block_table for chunk in chunks],
            block_size=self._block_size,
            device=self._store.kv_NLKBHD.device,
        )
        logits_SV = self._model.forward(
            torch.tensor(token_ids), torch.tensor(positions), self._store.kv_NLKBHD, meta, rows
        )
        return sample(logits_SV, draws)
