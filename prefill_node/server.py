"""The prefill node's process."""

from __future__ import annotations

from trunkline.config import NodeConfig
from trunkline.node.runtime import run_node
from trunkline.prefill_node.service import PrefillService
from trunkline.v1 import nodes_pb2


async def serve(config: NodeConfig) -> None:
    """Runs a prefill node until SIGTERM or SIGINT, then drains it."""
    descriptor = nodes_pb2.DESCRIPTOR.services_by_name["PrefillNode"]
    await run_node(config, lambda node: [(descriptor, PrefillService(node))])
