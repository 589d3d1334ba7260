"""A prefix that a peer holds, pulled instead of computed."""

from __future__ import annotations

import logging

from trunkline.engine.request import Request
from trunkline.node.node import Node
from trunkline.v1 import nodes_pb2

log = logging.getLogger(__name__)


async def pull_prefix(node: Node, request: Request, hint: nodes_pb2.PeerHint, cached_blocks: int) -> int:
    """Fills a loading request's blocks from the peer that `hint` names and lets the request run.

    Returns how many blocks came, beyond the `cached_blocks` held here. Whatever goes wrong at the peer, the
    request runs and computes the rest.
    """
    good = cached_blocks
    try:
        good = await _pull(node, request, hint, cached_blocks)
    finally:
        node.engine.loaded(request, good)
    return good - cached_blocks


async def _pull(node: Node, request: Request, hint: nodes_pb2.PeerHint, cached_blocks: int) -> int:
    # The last token is computed in any case, so its block is not asked for.
    hittable = (request.prompt_len - 1) // node.limits.block_size
    hashes = request.block_hashes(min(hittable, hint.blocks))
    if len(hashes) <= cached_blocks:
        return cached_blocks
    batch = await node.puller.lease(hint.address, hint.node.epoch, hashes, skip_blocks=cached_blocks)
    if batch is None:
        return cached_blocks
    try:
        result = await node.pull(request, batch)
    finally:
        await node.puller.release(batch)
    if result.failed:
        log.warning("%d of %d blocks from %s did not come", len(result.failed), len(batch.handles), batch.node)
    return contiguous(cached_blocks, result.ok)


def contiguous(first: int, good: frozenset[int] | set[int]) -> int:
    """The first index from `first` on that is not in `good`."""
    end = first
    while end in good:
        end += 1
    return end
