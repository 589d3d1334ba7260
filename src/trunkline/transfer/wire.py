"""Handles to protobuf and back, and the notification that ends a pull. All that comes in is checked here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trunkline.errors import InvalidArgument
from trunkline.transfer.contract import DIGEST_BYTES, BlockHandle, HandleBatch
from trunkline.v1 import common_pb2

MAX_NAME = 256
_NOTIFICATION = re.compile(rb"TLDONE ([0-9a-f]{1,64})")


def batch_to_proto(batch: HandleBatch) -> common_pb2.HandleBatch:
    return common_pb2.HandleBatch(
        holder=common_pb2.NodeRef(name=batch.node, epoch=batch.epoch),
        address=batch.address,
        lease_id=batch.lease_id,
        handles=[
            common_pb2.Handle(
                index=h.index, block_id=h.block_id, generation=h.generation, digest=h.digest, bytes=h.nbytes
            )
            for h in batch.handles
        ],
    )


def batch_from_proto(proto: common_pb2.HandleBatch) -> HandleBatch:
    """Raises InvalidArgument naming the field that is missing or malformed."""
    texts = {"holder.name": proto.holder.name, "holder.epoch": proto.holder.epoch}
    texts |= {"address": proto.address, "lease_id": proto.lease_id}
    for name, text in texts.items():
        if not 0 < len(text) <= MAX_NAME:
            raise InvalidArgument(f"handles.{name}", f"must have 1 to {MAX_NAME} characters")
    for i, handle in enumerate(proto.handles):
        if len(handle.digest) != DIGEST_BYTES:
            raise InvalidArgument(f"handles.handles[{i}].digest", f"has {len(handle.digest)} bytes, not {DIGEST_BYTES}")
    return HandleBatch(
        node=proto.holder.name,
        epoch=proto.holder.epoch,
        address=proto.address,
        lease_id=proto.lease_id,
        handles=tuple(
            BlockHandle(index=h.index, block_id=h.block_id, generation=h.generation, digest=h.digest, nbytes=h.bytes)
            for h in proto.handles
        ),
    )


@dataclass(frozen=True)
class Done:
    """A reader has all it wanted under a lease."""

    lease_id: str


def done_message(lease_id: str) -> bytes:
    return b"TLDONE " + lease_id.encode()


def parse_notification(message: bytes) -> Done | None:
    """None for whatever is not one of ours: anybody who can reach the agent can send anything."""
    match = _NOTIFICATION.fullmatch(message)
    return Done(match[1].decode()) if match else None
