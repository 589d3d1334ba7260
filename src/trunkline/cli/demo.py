"""trunkline demo: what a shared prefix saves, on a real cluster in a minute."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from trunkline.cli.model import run_pull
from trunkline.client import Client, request_of
from trunkline.cluster import ClusterConfig, LocalCluster
from trunkline.v1 import common_pb2

SYSTEM_TOKENS = 1_500
ANSWER_TOKENS = 32
QUESTIONS = (
    ("What may a guest bring?", "And what not?", "Who decides in doubt?"),
    ("When does the house open?", "And on holidays?", "Where do I ring at night?"),
    ("How do I book a room?", "Can I cancel?", "What does it cost?"),
)
_RULE = "Rule {n}: in room {n} guests keep quiet after ten, leave shoes at the door, and sign the book on page {n}. "


@dataclass(frozen=True)
class Row:
    name: str
    usage: common_pb2.Usage


def run_demo(model: str, dtype: str) -> None:
    console = Console(width=None if Console().is_terminal else 120)
    run_pull(model)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting the cluster")

        def show(text: str) -> None:
            progress.update(task, description=text)

        with LocalCluster(ClusterConfig(model=model, dtype=dtype, port=0), show) as cluster:
            with Client(cluster.address) as client:
                rows = _converse(client, show)
            show("stopping the cluster")
    console.print(_table(rows))
    _summarise(rows, console)


def _converse(client: Client, show) -> list[Row]:
    """Turn by turn over all conversations, so that each prefix is seen by others in between."""
    system = system_prompt(client)
    chats = [[("system", system)] for _ in QUESTIONS]
    rows = []
    for turn in range(len(QUESTIONS[0])):
        for number, chat in enumerate(chats):
            name = f"conversation {number + 1}, turn {turn + 1}"
            show(name)
            chat.append(("user", QUESTIONS[number][turn]))
            answer, usage = _ask(client, chat)
            chat.append(("assistant", answer))
            rows.append(Row(name, usage))
    return rows


def system_prompt(client: Client) -> str:
    """A text of SYSTEM_TOKENS tokens, within one rule."""
    text, n = "You answer for the Lakeside guest house. ", 0
    while len(client.tokenize(text)) < SYSTEM_TOKENS:
        n += 1
        text += _RULE.format(n=n)
    return text


def _ask(client: Client, chat: list[tuple[str, str]]) -> tuple[str, common_pb2.Usage]:
    pieces, usage = [], common_pb2.Usage()
    for event in client.generate(request_of(chat, max_tokens=ANSWER_TOKENS), timeout_s=300):
        pieces.append(event.chunk.text)
        if event.HasField("finished"):
            usage = event.finished.usage
    return "".join(pieces), usage


def _table(rows: list[Row]) -> Table:
    table = Table("request", "prefill node")
    for heading in ("prompt", "cached", "pulled", "computed", "blocks moved", "TTFT ms", "tokens/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        u = row.usage
        seconds = max(u.total_ms - u.ttft_ms, 1e-3) / 1e3
        numbers = (u.prompt_tokens, u.cached_local, u.cached_peer, u.computed, u.transferred_blocks)
        speeds = (f"{u.ttft_ms:.0f}", f"{(u.completion_tokens - 1) / seconds:.1f}")
        table.add_row(row.name, u.prefill_node.name, *map(str, numbers), *speeds)
    return table


def _summarise(rows: list[Row], console: Console) -> None:
    first = rows[0].usage.ttft_ms
    later = statistics.median(row.usage.ttft_ms for row in rows[1:])
    console.print(
        f"first request's TTFT {first:.0f} ms, the later ones' median {later:.0f} ms: {first / later:.1f} times less",
        highlight=False,
    )
