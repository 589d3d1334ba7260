from trunkline.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_PREFILL: _ClassVar[Role]
    ROLE_DECODE: _ClassVar[Role]
    ROLE_BOTH: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
ROLE_PREFILL: Role
ROLE_DECODE: Role
ROLE_BOTH: Role

class PrefillRequest(_message.Message):
    __slots__ = ("request_id", "fingerprint", "token_ids", "sampling", "extra_keys", "skip_blocks", "peer")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    EXTRA_KEYS_FIELD_NUMBER: _ClassVar[int]
    SKIP_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    fingerprint: bytes
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    extra_keys: _containers.RepeatedCompositeFieldContainer[_common_pb2.ExtraKey]
    skip_blocks: int
    peer: PeerHint
    def __init__(self, request_id: _Optional[str] = ..., fingerprint: _Optional[bytes] = ..., token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., extra_keys: _Optional[_Iterable[_Union[_common_pb2.ExtraKey, _Mapping]]] = ..., skip_blocks: _Optional[int] = ..., peer: _Optional[_Union[PeerHint, _Mapping]] = ...) -> None: ...

class PeerHint(_message.Message):
    __slots__ = ("node", "address", "blocks")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    node: _common_pb2.NodeRef
    address: str
    blocks: int
    def __init__(self, node: _Optional[_Union[_common_pb2.NodeRef, _Mapping]] = ..., address: _Optional[str] = ..., blocks: _Optional[int] = ...) -> None: ...

class PrefillEvent(_message.Message):
    __slots__ = ("handles", "done")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    handles: _common_pb2.HandleBatch
    done: PrefillDone
    def __init__(self, handles: _Optional[_Union[_common_pb2.HandleBatch, _Mapping]] = ..., done: _Optional[_Union[PrefillDone, _Mapping]] = ...) -> None: ...

class PrefillDone(_message.Message):
    __slots__ = ("first_token", "handles", "cached_local", "cached_peer", "computed", "queue_ms", "prefill_ms")
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    CACHED_LOCAL_FIELD_NUMBER: _ClassVar[int]
    CACHED_PEER_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    first_token: int
    handles: _common_pb2.HandleBatch
    cached_local: int
    cached_peer: int
    computed: int
    queue_ms: float
    prefill_ms: float
    def __init__(self, first_token: _Optional[int] = ..., handles: _Optional[_Union[_common_pb2.HandleBatch, _Mapping]] = ..., cached_local: _Optional[int] = ..., cached_peer: _Optional[int] = ..., computed: _Optional[int] = ..., queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ...) -> None: ...

class DecodeInput(_message.Message):
    __slots__ = ("start", "handles", "finished")
    START_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    start: DecodeStart
    handles: _common_pb2.HandleBatch
    finished: PrefillFinished
    def __init__(self, start: _Optional[_Union[DecodeStart, _Mapping]] = ..., handles: _Optional[_Union[_common_pb2.HandleBatch, _Mapping]] = ..., finished: _Optional[_Union[PrefillFinished, _Mapping]] = ...) -> None: ...

class DecodeStart(_message.Message):
    __slots__ = ("request_id", "fingerprint", "token_ids", "sampling", "extra_keys", "compute_locally")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    EXTRA_KEYS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_LOCALLY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    fingerprint: bytes
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    extra_keys: _containers.RepeatedCompositeFieldContainer[_common_pb2.ExtraKey]
    compute_locally: bool
    def __init__(self, request_id: _Optional[str] = ..., fingerprint: _Optional[bytes] = ..., token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., extra_keys: _Optional[_Iterable[_Union[_common_pb2.ExtraKey, _Mapping]]] = ..., compute_locally: _Optional[bool] = ...) -> None: ...

class PrefillFinished(_message.Message):
    __slots__ = ("first_token", "handles")
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    first_token: int
    handles: _common_pb2.HandleBatch
    def __init__(self, first_token: _Optional[int] = ..., handles: _Optional[_Union[_common_pb2.HandleBatch, _Mapping]] = ...) -> None: ...

class DecodeOutput(_message.Message):
    __slots__ = ("reserved", "tokens", "finished")
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    reserved: Reserved
    tokens: Tokens
    finished: DecodeFinished
    def __init__(self, reserved: _Optional[_Union[Reserved, _Mapping]] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ..., finished: _Optional[_Union[DecodeFinished, _Mapping]] = ...) -> None: ...

class Reserved(_message.Message):
    __slots__ = ("cached_blocks", "queue_ms")
    CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    cached_blocks: int
    queue_ms: float
    def __init__(self, cached_blocks: _Optional[int] = ..., queue_ms: _Optional[float] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DecodeFinished(_message.Message):
    __slots__ = ("reason", "transferred_blocks", "recomputed", "transfer_ms", "cached_local", "computed", "prefill_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRANSFERRED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_MS_FIELD_NUMBER: _ClassVar[int]
    CACHED_LOCAL_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    reason: _common_pb2.FinishReason
    transferred_blocks: int
    recomputed: int
    transfer_ms: float
    cached_local: int
    computed: int
    prefill_ms: float
    def __init__(self, reason: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., transferred_blocks: _Optional[int] = ..., recomputed: _Optional[int] = ..., transfer_ms: _Optional[float] = ..., cached_local: _Optional[int] = ..., computed: _Optional[int] = ..., prefill_ms: _Optional[float] = ...) -> None: ...

class HandshakeRequest(_message.Message):
    __slots__ = ("reader", "protocol", "fingerprint", "block_bytes", "epoch")
    READER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    reader: _common_pb2.NodeRef
    protocol: int
    fingerprint: bytes
    block_bytes: int
    epoch: str
    def __init__(self, reader: _Optional[_Union[_common_pb2.NodeRef, _Mapping]] = ..., protocol: _Optional[int] = ..., fingerprint: _Optional[bytes] = ..., block_bytes: _Optional[int] = ..., epoch: _Optional[str] = ...) -> None: ...

class HandshakeResponse(_message.Message):
    __slots__ = ("holder", "protocol", "fingerprint", "block_bytes", "num_blocks", "base_address", "agent_metadata")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BASE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AGENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    holder: _common_pb2.NodeRef
    protocol: int
    fingerprint: bytes
    block_bytes: int
    num_blocks: int
    base_address: int
    agent_metadata: bytes
    def __init__(self, holder: _Optional[_Union[_common_pb2.NodeRef, _Mapping]] = ..., protocol: _Optional[int] = ..., fingerprint: _Optional[bytes] = ..., block_bytes: _Optional[int] = ..., num_blocks: _Optional[int] = ..., base_address: _Optional[int] = ..., agent_metadata: _Optional[bytes] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("reader", "fingerprint", "hashes", "skip_blocks")
    READER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    SKIP_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    reader: _common_pb2.NodeRef
    fingerprint: bytes
    hashes: _containers.RepeatedScalarFieldContainer[bytes]
    skip_blocks: int
    def __init__(self, reader: _Optional[_Union[_common_pb2.NodeRef, _Mapping]] = ..., fingerprint: _Optional[bytes] = ..., hashes: _Optional[_Iterable[bytes]] = ..., skip_blocks: _Optional[int] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("handles", "ttl_ms")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    handles: _common_pb2.HandleBatch
    ttl_ms: int
    def __init__(self, handles: _Optional[_Union[_common_pb2.HandleBatch, _Mapping]] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("lease_ids",)
    LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    lease_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lease_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("unknown", "ttl_ms")
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    ttl_ms: int
    def __init__(self, unknown: _Optional[_Iterable[str]] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("lease_ids",)
    LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    lease_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lease_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StateRequest(_message.Message):
    __slots__ = ("verify",)
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    verify: bool
    def __init__(self, verify: _Optional[bool] = ...) -> None: ...

class NodeState(_message.Message):
    __slots__ = ("node", "role", "address", "model", "fingerprint", "dtype", "block_size", "blocks_total", "blocks_free", "blocks_cached", "blocks_referenced", "blocks_leased", "leases", "running_requests", "waiting_requests", "prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "preemptions", "pulled_blocks", "failed_blocks", "draining", "integrity_error", "unusable_reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FREE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_CACHED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_REFERENCED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_LEASED_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    PULLED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FAILED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    INTEGRITY_ERROR_FIELD_NUMBER: _ClassVar[int]
    UNUSABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    node: _common_pb2.NodeRef
    role: Role
    address: str
    model: str
    fingerprint: str
    dtype: str
    block_size: int
    blocks_total: int
    blocks_free: int
    blocks_cached: int
    blocks_referenced: int
    blocks_leased: int
    leases: int
    running_requests: int
    waiting_requests: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    generated_tokens: int
    preemptions: int
    pulled_blocks: int
    failed_blocks: int
    draining: bool
    integrity_error: str
    unusable_reason: str
    def __init__(self, node: _Optional[_Union[_common_pb2.NodeRef, _Mapping]] = ..., role: _Optional[_Union[Role, str]] = ..., address: _Optional[str] = ..., model: _Optional[str] = ..., fingerprint: _Optional[str] = ..., dtype: _Optional[str] = ..., block_size: _Optional[int] = ..., blocks_total: _Optional[int] = ..., blocks_free: _Optional[int] = ..., blocks_cached: _Optional[int] = ..., blocks_referenced: _Optional[int] = ..., blocks_leased: _Optional[int] = ..., leases: _Optional[int] = ..., running_requests: _Optional[int] = ..., waiting_requests: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., computed_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., pulled_blocks: _Optional[int] = ..., failed_blocks: _Optional[int] = ..., draining: _Optional[bool] = ..., integrity_error: _Optional[str] = ..., unusable_reason: _Optional[str] = ...) -> None: ...
