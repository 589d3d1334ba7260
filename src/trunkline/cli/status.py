"""trunkline status."""

from __future__ import annotations

import sys

from google.protobuf.json_format import MessageToJson
from rich.console import Console
from rich.table import Table

from trunkline.client import Client
from trunkline.v1 import inference_pb2, nodes_pb2

COLUMNS = ("node", "role", "epoch", "model", "dtype", "used", "cached", "free", "leases", "running", "hit rate", "note")


def run_status(router: str, *, verify: bool, as_json: bool) -> None:
    """Exit status 1 when a node is unusable or its books disagree."""
    with Client(router) as client:
        state = client.state(verify=verify)
    if as_json:
        print(MessageToJson(state, preserving_proto_field_name=True))
    else:
        _print(state)
    if any(node.integrity_error for node in state.nodes):
        sys.exit(1)


def _print(state: inference_pb2.ClusterStateResponse) -> None:
    table = Table(*COLUMNS)
    for node in state.nodes:
        table.add_row(*_row(node))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    r = state.router
    console.print(
        f"router: {r.running_requests} running, {r.finished_requests} finished, {r.failed_requests} failed,"
        f" {r.cancelled_requests} cancelled; {r.index_entries} index entries;"
        f" hit rate {_rate(r.cached_tokens, r.prompt_tokens)}",
        highlight=False,
    )


def _row(node: nodes_pb2.NodeState) -> tuple[str, ...]:
    return (
        node.node.name,
        nodes_pb2.Role.Name(node.role).removeprefix("ROLE_").lower(),
        node.node.epoch[:8],
        node.model,
        node.dtype,
        str(node.blocks_referenced + node.blocks_leased),
        str(node.blocks_cached),
        str(node.blocks_free),
        str(node.leases),
        str(node.running_requests),
        _rate(node.cached_tokens, node.prompt_tokens),
        node.integrity_error or node.unusable_reason,
    )


def _rate(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"
