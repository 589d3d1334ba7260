from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason

class SamplingParams(_message.Message):
    __slots__ = ("max_tokens", "temperature", "seed", "ignore_eos")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool
    def __init__(self, max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., seed: _Optional[int] = ..., ignore_eos: _Optional[bool] = ...) -> None: ...

class ExtraKey(_message.Message):
    __slots__ = ("block", "kind", "value")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    block: int
    kind: int
    value: bytes
    def __init__(self, block: _Optional[int] = ..., kind: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class NodeRef(_message.Message):
    __slots__ = ("name", "epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    epoch: str
    def __init__(self, name: _Optional[str] = ..., epoch: _Optional[str] = ...) -> None: ...

class Handle(_message.Message):
    __slots__ = ("index", "block_id", "generation", "digest", "bytes")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    index: int
    block_id: int
    generation: int
    digest: bytes
    bytes: int
    def __init__(self, index: _Optional[int] = ..., block_id: _Optional[int] = ..., generation: _Optional[int] = ..., digest: _Optional[bytes] = ..., bytes: _Optional[int] = ...) -> None: ...

class HandleBatch(_message.Message):
    __slots__ = ("holder", "address", "lease_id", "handles")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    holder: NodeRef
    address: str
    lease_id: str
    handles: _containers.RepeatedCompositeFieldContainer[Handle]
    def __init__(self, holder: _Optional[_Union[NodeRef, _Mapping]] = ..., address: _Optional[str] = ..., lease_id: _Optional[str] = ..., handles: _Optional[_Iterable[_Union[Handle, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_local", "cached_peer", "computed", "transferred_blocks", "decode_cached_blocks", "recomputed", "queue_ms", "prefill_ms", "transfer_ms", "ttft_ms", "total_ms", "prefill_node", "decode_node")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_LOCAL_FIELD_NUMBER: _ClassVar[int]
    CACHED_PEER_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    TRANSFERRED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DECODE_CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_NODE_FIELD_NUMBER: _ClassVar[int]
    DECODE_NODE_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_local: int
    cached_peer: int
    computed: int
    transferred_blocks: int
    decode_cached_blocks: int
    recomputed: int
    queue_ms: float
    prefill_ms: float
    transfer_ms: float
    ttft_ms: float
    total_ms: float
    prefill_node: NodeRef
    decode_node: NodeRef
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_local: _Optional[int] = ..., cached_peer: _Optional[int] = ..., computed: _Optional[int] = ..., transferred_blocks: _Optional[int] = ..., decode_cached_blocks: _Optional[int] = ..., recomputed: _Optional[int] = ..., queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ..., transfer_ms: _Optional[float] = ..., ttft_ms: _Optional[float] = ..., total_ms: _Optional[float] = ..., prefill_node: _Optional[_Union[NodeRef, _Mapping]] = ..., decode_node: _Optional[_Union[NodeRef, _Mapping]] = ...) -> None: ...
