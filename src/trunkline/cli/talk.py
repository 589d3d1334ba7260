"""trunkline generate and trunkline chat."""

from __future__ import annotations

import sys

from rich.console import Console

from trunkline.client import Client, request_of
from trunkline.errors import TrunklineError
from trunkline.v1 import common_pb2, inference_pb2

_stderr = Console(stderr=True, highlight=False)


def run_generate(
    router: str,
    prompt: str,
    *,
    max_tokens: int | None,
    temperature: float,
    seed: int | None,
    raw: bool,
    stats: bool,
) -> None:
    text = sys.stdin.read() if prompt == "-" else prompt
    request = request_of(text if raw else [("user", text)], max_tokens=max_tokens, temperature=temperature, seed=seed)
    with Client(router) as client:
        _, usage = _stream(client, request)
    if stats:
        _stderr.print(describe(usage))


def run_chat(router: str, *, max_tokens: int | None, temperature: float, system: str | None) -> None:
    opening = [("system", system)] if system else []
    messages, usage = list(opening), common_pb2.Usage()
    with Client(router) as client:
        while (line := _ask()) is not None and line != "/exit":
            if line == "/reset":
                messages = list(opening)
            elif line == "/stats":
                _stderr.print(describe(usage))
            elif line:
                messages.append(("user", line))
                answer, usage = _answer(client, messages, max_tokens, temperature, usage)
                messages.append(("assistant", answer))


def _ask() -> str | None:
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None


def _answer(
    client: Client, messages: list[tuple[str, str]], max_tokens: int | None, temperature: float, last: common_pb2.Usage
) -> tuple[str, common_pb2.Usage]:
    try:
        return _stream(client, request_of(messages, max_tokens=max_tokens, temperature=temperature))
    except KeyboardInterrupt:
        print("\n(stopped)")
    except TrunklineError as error:
        _stderr.print(f"[red]error:[/red] {error.message}")
    return "", last


def _stream(client: Client, request: inference_pb2.GenerateRequest) -> tuple[str, common_pb2.Usage]:
    """Prints the answer as it comes; returns it and its ledger."""
    pieces, usage = [], common_pb2.Usage()
    for event in client.generate(request):
        if event.HasField("chunk"):
            pieces.append(event.chunk.text)
            print(event.chunk.text, end="", flush=True)
        elif event.HasField("finished"):
            usage = event.finished.usage
    print()
    return "".join(pieces), usage


def describe(usage: common_pb2.Usage) -> str:
    """A ledger in words."""
    return (
        f"prompt {usage.prompt_tokens} tokens = {usage.cached_local} cached + {usage.cached_peer} pulled"
        f" + {usage.computed} computed; {usage.transferred_blocks} blocks moved;"
        f" {usage.prefill_node.name or '-'} -> {usage.decode_node.name};"
        f" first token {usage.ttft_ms:.0f} ms, {usage.completion_tokens} tokens in {usage.total_ms:.0f} ms"
    )
