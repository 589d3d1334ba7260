"""What arrives from the router, checked and turned into engine requests.

The router has validated for the client's sake; a node trusts nothing all the same, since a bad id or length here would
crash a step that others share.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from trunkline.cache.block_hash import ExtraKeyKind
from trunkline.engine.request import Event, Failed, Finished, Job, NewTokens, Request, Sampling
from trunkline.errors import FailedPrecondition, InvalidArgument
from trunkline.v1 import common_pb2, nodes_pb2

MAX_REQUEST_ID = 128
MAX_EXTRA_KEY_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may be on this node."""

    fingerprint: bytes
    hash_seed: bytes
    vocab_size: int
    max_model_len: int
    block_size: int
    num_blocks: int


class EventStream:
    """An engine request's events for one asyncio consumer. put() is called on the event loop's thread."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._queue.put_nowait(event)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Ends after Finished; raises the error of Failed. Tokens that are ready together come together."""
        while True:
            event = await self._queue.get()
            if isinstance(event, NewTokens):
                event, after = self._coalesced(event)
            else:
                after = None
            for item in (event, after):
                if isinstance(item, Failed):
                    raise item.error
                if item is not None:
                    yield item
                if isinstance(item, Finished):
                    return

    def _coalesced(self, tokens: NewTokens) -> tuple[NewTokens, Event | None]:
        """`tokens` and all that are queued behind it, and the first event that is something else."""
        ids = list(tokens.ids)
        while not self._queue.empty():
            event = self._queue.get_nowait()
            if not isinstance(event, NewTokens):
                return NewTokens(tuple(ids)), event
            ids += event.ids
        return NewTokens(tuple(ids)), None


Start = nodes_pb2.PrefillRequest | nodes_pb2.DecodeStart


def make_request(start: Start, job: Job, limits: Limits, events: EventStream, *, load_first: bool = False) -> Request:
    """An engine request for `start`. Raises InvalidArgument or FailedPrecondition that names what does not fit."""
    if start.fingerprint != limits.fingerprint:
        raise FailedPrecondition(
            f"fingerprint {start.fingerprint.hex()[:16]} is not this node's {limits.fingerprint.hex()[:16]}: "
            "the request was prepared for another model, revision, dtype or block size"
        )
    if not 0 < len(start.request_id) <= MAX_REQUEST_ID:
        raise InvalidArgument("request_id", f"must have 1 to {MAX_REQUEST_ID} characters")
    sampling = _sampling(start.sampling)
    _check_tokens(start.token_ids, sampling.max_tokens if job is not Job.PREFILL else 1, limits)
    return Request(
        request_id=start.request_id,
        token_ids=start.token_ids,
        sampling=sampling,
        job=job,
        block_size=limits.block_size,
        hash_seed=limits.hash_seed,
        sink=events.put,
        extra_keys=_extra_keys(start.extra_keys),
        load_first=load_first,
    )


def _sampling(sampling: common_pb2.SamplingParams) -> Sampling:
    if sampling.max_tokens < 1:
        raise InvalidArgument("sampling.max_tokens", f"must be at least 1, not {sampling.max_tokens}")
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise InvalidArgument("sampling.temperature", f"must be finite and at least 0, not {sampling.temperature}")
    return Sampling(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        ignore_eos=sampling.ignore_eos,
    )


def _check_tokens(token_ids: Sequence[int], max_tokens: int, limits: Limits) -> None:
    if not token_ids:
        raise InvalidArgument("token_ids", "must not be empty")
    if max(token_ids) >= limits.vocab_size:
        raise InvalidArgument("token_ids", f"{max(token_ids)} is outside the vocabulary of {limits.vocab_size}")
    whole = len(token_ids) + max_tokens
    if whole > limits.max_model_len:
        raise InvalidArgument("token_ids", f"prompt and answer of {whole} tokens pass {limits.max_model_len}")
    if whole > limits.num_blocks * limits.block_size:
        room = limits.num_blocks * limits.block_size
        raise InvalidArgument("token_ids", f"prompt and answer of {whole} tokens pass this node's pool of {room}")


def _extra_keys(keys: Sequence[common_pb2.ExtraKey]) -> dict[int, list[tuple[int, bytes]]]:
    found: dict[int, list[tuple[int, bytes]]] = {}
    for i, key in enumerate(keys):
        if key.kind not in list(ExtraKeyKind):
            raise InvalidArgument(f"extra_keys[{i}].kind", f"{key.kind} is not a kind of extra key")
        if len(key.value) > MAX_EXTRA_KEY_BYTES:
            raise InvalidArgument(f"extra_keys[{i}].value", f"is longer than {MAX_EXTRA_KEY_BYTES} bytes")
        found.setdefault(key.block, []).append((key.kind, key.value))
    return found
