"""The decode node's process."""

from __future__ import annotations

from trunkline.config import NodeConfig
from trunkline.decode_node.service import DecodeService
from trunkline.node.runtime import run_node
from trunkline.v1 import nodes_pb2


async def serve(config: NodeConfig) -> None:
    """Runs a decode node until SIGTERM or SIGINT, then drains it."""
    descriptor = nodes_pb2.DESCRIPTOR.services_by_name["DecodeNode"]
    await run_node(config, lambda node: [(descriptor, DecodeService(node))])
