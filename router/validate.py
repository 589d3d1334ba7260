"""What a client sends, checked before any node hears of it. Every refusal names the field and the limit."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from trunkline.errors import InvalidArgument, NotFound
from trunkline.tokenizer import Tokenizer
from trunkline.v1 import common_pb2, inference_pb2

DEFAULT_MAX_TOKENS = 256
MAX_TEMPERATURE = 100.0
MAX_SALT_BYTES = 1024
MAX_MESSAGES = 10_000
#: No token of the vocabularies in use spells more bytes on average; longer text is refused without tokenising it.
MAX_BYTES_PER_TOKEN = 64


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the cluster's nodes can take."""

    model: str
    vocab_size: int
    context_length: int
    #: Tokens that the smallest pool among the nodes holds.
    pool_tokens: int

    @property
    def longest(self) -> int:
        return min(self.context_length, self.pool_tokens)


def check_model(name: str, limits: Limits) -> None:
    if name and name != limits.model:
        raise NotFound("model", name[:200], f"this cluster serves {limits.model}")


def prompt_tokens(
    request: inference_pb2.GenerateRequest | inference_pb2.TokenizeRequest, tokenizer: Tokenizer, limits: Limits
) -> list[int]:
    """The prompt's ids. Slow for long text: call it off the event loop. Raises InvalidArgument."""
    kind = request.WhichOneof("prompt")
    if kind == "chat":
        messages = [{"role": m.role, "content": m.content} for m in request.chat.messages]
        if len(messages) > MAX_MESSAGES:
            raise InvalidArgument("chat.messages", f"{len(messages)} messages; at most {MAX_MESSAGES}")
        _check_size("chat.messages", sum(len(m["content"]) for m in messages), limits)
        ids, field = tokenizer.render_chat(messages), "chat.messages"
    elif kind == "text":
        _check_size("text", len(request.text), limits)
        ids, field = tokenizer.encode(request.text), "text"
    elif kind == "tokens" and isinstance(request, inference_pb2.GenerateRequest):
        ids, field = list(request.tokens.ids), "tokens.ids"
        _check_ids(ids, limits.vocab_size)
    else:
        raise InvalidArgument("prompt", "give one of chat, text or tokens")
    if not ids:
        raise InvalidArgument(field, "the prompt is empty")
    _check_length(field, len(ids), limits)
    return ids


def _check_size(field: str, characters: int, limits: Limits) -> None:
    most = limits.context_length * MAX_BYTES_PER_TOKEN
    if characters > most:
        raise InvalidArgument(
            field, f"{characters} characters cannot fit a context of {limits.context_length} tokens (limit {most})"
        )


def _check_ids(ids: Sequence[int], vocab_size: int) -> None:
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    i = next(i for i, token in enumerate(ids) if not 0 <= token < vocab_size)
    raise InvalidArgument(f"tokens.ids[{i}]", f"{ids[i]} is outside the vocabulary, 0 to {vocab_size - 1}")


def _check_length(field: str, length: int, limits: Limits) -> None:
    if length + 1 > limits.context_length:
        raise InvalidArgument(
            field, f"{length} tokens; the context of {limits.context_length} leaves {limits.context_length - 1}"
        )
    if length + 1 > limits.pool_tokens:
        raise InvalidArgument(field, f"{length} tokens; the nodes' pool of {limits.pool_tokens} tokens is too small")


def resolve_sampling(sampling: common_pb2.SamplingParams, length: int, limits: Limits) -> common_pb2.SamplingParams:
    """`sampling` with every default filled in, for a prompt of `length` tokens. Raises InvalidArgument."""
    room = limits.longest - length
    resolved = common_pb2.SamplingParams()
    resolved.CopyFrom(sampling)
    if not sampling.HasField("max_tokens"):
        resolved.max_tokens = min(DEFAULT_MAX_TOKENS, room)
    elif not 1 <= sampling.max_tokens <= room:
        raise InvalidArgument(
            "sampling.max_tokens",
            f"must be from 1 to {room} (limit {limits.longest} less {length} prompt tokens), not {sampling.max_tokens}",
        )
    temperature = sampling.temperature
    if not (math.isfinite(temperature) and 0 <= temperature <= MAX_TEMPERATURE):
        raise InvalidArgument("sampling.temperature", f"must be from 0 to {MAX_TEMPERATURE:g}, not {temperature}")
    if not sampling.HasField("seed"):
        resolved.seed = secrets.randbits(63)
    return resolved


def check_salt(salt: str) -> bytes:
    raw = salt.encode()
    if len(raw) > MAX_SALT_BYTES:
        raise InvalidArgument("cache_salt", f"{len(raw)} bytes; at most {MAX_SALT_BYTES}")
    return raw
