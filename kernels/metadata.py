"""One step's sequences as attention sees them.

Knows where each sequence's tokens stand in the step and which blocks hold its KV; knows no requests.

Shapes: T tokens of the step, S sequences, W blocks of the longest table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class AttentionMetadata:
    """Sequence s owns tokens query_starts[s] .. query_starts[s+1]-1 of the step: the last ones of its context."""

    #: [S+1], host.
    query_starts: list[int]
    #: [S], host: tokens in the cache once this step's are written (what came before and this step's).
    context_lens: list[int]
    #: int64 [T]: block_id * block_size + offset of each token of the step.
    slot_mapping_T: Tensor
    #: int64 [S, W]; rows are filled up with block 0, which is never read past context_lens.
    block_tables_SW: Tensor
    #: int32 [S+1] and [S], as the lists above, for kernels.
    query_starts_S1: Tensor
    context_lens_S: Tensor

    @classmethod
    def build(
        cls,
        *,
        query_starts: Sequence[int],
        context_lens: Sequence[int],
        block_tables: Sequence[Sequence[int]],
        block_size: int,
        device: torch.device,
    ) -> AttentionMetadata:
        """`block_tables`: for each sequence the physical blocks of its context, in order; longer ones are cut."""
        blocks = [-(-n // block_size) for n in context_lens]
        width = max(blocks)
        tables = torch.tensor([[*t[:n], *[0] * (width - n)] for t, n in zip(block_tables, blocks, strict=True)])
        slots: list[Tensor] = []
        for s, context in enumerate(context_lens):
            positions = torch.arange(context - (query_starts[s + 1] - query_starts[s]), context)
            slots.append(tables[s, positions // block_size] * block_size + positions % block_size)
        return cls(
            query_starts=list(query_starts),
            context_lens=list(context_lens),
            slot_mapping_T=torch.cat(slots).to(device),
            block_tables_SW=tables.to(device),
            query_starts_S1=torch.tensor(query_starts, dtype=torch.int32, device=device),
            context_lens_S=torch.tensor(context_lens, dtype=torch.int32, device=device),
        )
