"""What nodes tell about themselves through Redis, and the names of the keys it lies under.

All that is read back is checked: whoever can write to Redis could have written it.

    tl:nodes                     stream   {"epoch"} of each node that came or went (bounded)
    tl:registry                  hash     epoch -> NodeRecord
    tl:live:<epoch>              string   there while the node is; ends by itself
    tl:<fp>:<epoch>:held         set      hashes that the node holds
    tl:<fp>:<epoch>:events       stream   numbered batches and heartbeats (bounded)
    tl:<fp>:<epoch>:sequence     string   number of the last batch applied to the set
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

NODES_STREAM = "tl:nodes"
REGISTRY = "tl:registry"
#: Entries a stream keeps, about. A router that fell further behind reads the set again.
STREAM_LENGTH = 10_000
NODES_STREAM_LENGTH = 1_000


class NodeRecord(BaseModel):
    """One life of one node: fixed from registration on."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: str = Field(min_length=1, max_length=128)
    role: Literal["prefill", "decode", "both"]
    epoch: str = Field(pattern=r"^[0-9a-f]{8,64}$")
    #: host:port of its gRPC services.
    address: str = Field(min_length=1, max_length=256)
    model: str = Field(min_length=1, max_length=512)
    #: Hex.
    fingerprint: str = Field(pattern=r"^[0-9a-f]{2,128}$")
    block_size: int = Field(ge=1)
    block_bytes: int = Field(ge=1)
    num_blocks: int = Field(ge=1)
    max_model_len: int = Field(ge=1)
    vocab_size: int = Field(ge=1)
    dtype: str
    protocol: int
    #: Unix time, seconds. Of two lives of one name the later counts.
    started_at: float

    @property
    def prefix(self) -> str:
        return f"tl:{self.fingerprint[:16]}:{self.epoch}:"

    @property
    def held_key(self) -> str:
        return self.prefix + "held"

    @property
    def events_key(self) -> str:
        return self.prefix + "events"

    @property
    def sequence_key(self) -> str:
        return self.prefix + "sequence"

    @property
    def live_key(self) -> str:
        return live_key(self.epoch)


class NodeLoad(BaseModel):
    """How a node is doing, with every heartbeat."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    running: int = Field(ge=0)
    waiting: int = Field(ge=0)
    #: Tokens admitted or waiting that are not computed yet.
    queued_tokens: int = Field(ge=0)
    blocks_free: int = Field(ge=0)
    blocks_cached: int = Field(ge=0)
    blocks_referenced: int = Field(ge=0)
    blocks_leased: int = Field(ge=0)
    leases: int = Field(ge=0)
    draining: bool = False


def live_key(epoch: str) -> str:
    return f"tl:live:{epoch}"


def parse_record(raw: bytes, epoch: str | None = None) -> NodeRecord | None:
    """None for what is not a record, or not of `epoch`."""
    try:
        record = NodeRecord.model_validate_json(raw)
    except ValidationError:
        return None
    return record if epoch is None or record.epoch == epoch else None


def parse_load(raw: bytes) -> NodeLoad | None:
    """None for what is not a load."""
    try:
        return NodeLoad.model_validate_json(raw)
    except ValidationError:
        return None


def is_epoch(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{8,64}", text) is not None
