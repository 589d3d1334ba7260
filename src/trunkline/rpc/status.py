"""Errors to gRPC statuses and back: the one place where Trunkline's errors and gRPC's codes meet.

Rich details follow google.rpc (AIP-193): ErrorInfo always, BadRequest for InvalidArgument, ResourceInfo
for NotFound, RetryInfo for ResourceExhausted and Unavailable.
"""

from __future__ import annotations

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import error_details_pb2, status_pb2

from trunkline import errors

DOMAIN = "trunkline"
DETAILS_KEY = "grpc-status-details-bin"

CODES: dict[type[errors.TrunklineError], grpc.StatusCode] = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.Cancelled: grpc.StatusCode.CANCELLED,
    errors.Internal: grpc.StatusCode.INTERNAL,
}


def code_of(error: errors.TrunklineError) -> grpc.StatusCode:
    """The gRPC code of `error`'s class, or of its nearest base; INTERNAL for the root."""
    for cls in type(error).__mro__:
        if cls in CODES:
            return CODES[cls]
    return grpc.StatusCode.INTERNAL


def status_proto(error: errors.TrunklineError) -> status_pb2.Status:
    """`error` as a google.rpc.Status with its details."""
    details: list[message.Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)
    ]
    if isinstance(error, errors.InvalidArgument):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.description)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, errors.NotFound):
        details.append(
            error_details_pb2.ResourceInfo(
                resource_type=error.what, resource_name=error.name, description=error.message
            )
        )
    if isinstance(error, errors.ResourceExhausted):
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(int(error.retry_after_s * 1e3))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return status_pb2.Status(code=code_of(error).value[0], message=error.message, details=[_pack(d) for d in details])


def _pack(detail: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def trailing_metadata(error: errors.TrunklineError) -> tuple[tuple[str, bytes], ...]:
    """Trailing metadata that carries `error`'s rich status, as grpcio-status reads it."""
    return ((DETAILS_KEY, status_proto(error).SerializeToString()),)


def from_rpc_error(error: grpc.aio.AioRpcError | grpc.RpcError, *, node: str = "") -> errors.TrunklineError:
    """The Trunkline error behind a failed call, its field or resource restored from the details.

    Raise it `from` the RPC error. `node` names the peer in errors that are its going away.
    """
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN  # type: ignore[attr-defined]
    text = (error.details() if isinstance(error, grpc.Call) else None) or str(code)  # type: ignore[attr-defined]
    details = _details(error)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        bad = details.get("BadRequest")
        if isinstance(bad, error_details_pb2.BadRequest) and bad.field_violations:
            first = bad.field_violations[0]
            return errors.InvalidArgument(first.field, first.description)
        return errors.InvalidArgument("request", text)
    if code is grpc.StatusCode.NOT_FOUND:
        info = details.get("ResourceInfo")
        if isinstance(info, error_details_pb2.ResourceInfo):
            restored = errors.NotFound(info.resource_type, info.resource_name)
            restored.message = text
            return restored
        return errors.NotFound("resource", text)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        retry = details.get("RetryInfo")
        seconds = retry.retry_delay.ToMilliseconds() / 1e3 if isinstance(retry, error_details_pb2.RetryInfo) else 1.0
        return errors.ResourceExhausted(text, seconds)
    if code is grpc.StatusCode.UNAVAILABLE:
        return errors.Unavailable(f"node {node} is unavailable: {text}" if node else text, node)
    for cls, mapped in CODES.items():
        if mapped is code and cls not in (errors.Unavailable,):
            return cls(text)  # type: ignore[call-arg]
    return errors.Internal(f"{code}: {text}")


_DETAIL_TYPES: dict[str, type[message.Message]] = {
    "BadRequest": error_details_pb2.BadRequest,
    "ResourceInfo": error_details_pb2.ResourceInfo,
    "RetryInfo": error_details_pb2.RetryInfo,
}


def _details(error: grpc.aio.AioRpcError | grpc.RpcError) -> dict[str, message.Message]:
    """Known rich details by type name; whatever is malformed is left out."""
    found: dict[str, message.Message] = {}
    metadata = error.trailing_metadata() if isinstance(error, grpc.Call) else None  # type: ignore[attr-defined]
    for key, value in metadata or ():
        if key != DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
            for packed in status.details:
                name = packed.type_url.rsplit(".", 1)[-1]
                if name in _DETAIL_TYPES:
                    detail = _DETAIL_TYPES[name]()
                    if packed.Unpack(detail):
                        found[name] = detail
        except message.DecodeError:
            continue
    return found
