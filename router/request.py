"""A request as the router works on it: validated, tokenised, hashed. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

from trunkline.v1 import common_pb2


@dataclass(frozen=True, kw_only=True)
class RouterRequest:
    id: str
    token_ids: list[int]
    #: Every field resolved: max_tokens and seed are set.
    sampling: common_pb2.SamplingParams
    extra_keys: list[common_pb2.ExtraKey]
    #: Of the prompt's full blocks.
    block_hashes: list[bytes]
    fingerprint: bytes
    eos_token_ids: tuple[int, ...]
