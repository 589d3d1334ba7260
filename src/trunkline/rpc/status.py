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


def from_rpc_error(error: grpc.aio.AioRpcError, *, node: str = "") -> errors.TrunklineError:
    """The Trunkline error behind a failed call, its field or resource restored from the details.

    Raise it `from` the RPC error. `node` names the peer in errors that are its going away.
    """
    text = error.details() or str(error.code())
    details = _details(error)
    cls = next((cls for cls, code in CODES.items() if code is error.code()), None)
    if cls is errors.InvalidArgument:
        return _invalid_argument(details.get("BadRequest"), text)
    if cls is errors.NotFound:
        return _not_found(details.get("ResourceInfo"), text)
    if cls is errors.ResourceExhausted:
        return errors.ResourceExhausted(text, _retry_seconds(details.get("RetryInfo")))
    if cls is errors.Unavailable:
        return errors.Unavailable(f"node {node} is unavailable: {text}" if node else text, node)
    if cls in (errors.FailedPrecondition, errors.DeadlineExceeded, errors.Cancelled, errors.Internal):
        return cls(text)
    return errors.Internal(f"{error.code()}: {text}")


def _invalid_argument(detail: message.Message | None, text: str) -> errors.InvalidArgument:
    if isinstance(detail, error_details_pb2.BadRequest) and detail.field_violations:
        first = detail.field_violations[0]
        return errors.InvalidArgument(first.field, first.description)
    return errors.InvalidArgument("request", text)


def _not_found(detail: message.Message | None, text: str) -> errors.NotFound:
    if not isinstance(detail, error_details_pb2.ResourceInfo):
        return errors.NotFound("resource", text)
    restored = errors.NotFound(detail.resource_type, detail.resource_name)
    restored.message = text
    return restored


def _retry_seconds(detail: message.Message | None) -> float:
    if isinstance(detail, error_details_pb2.RetryInfo):
        return detail.retry_delay.ToMilliseconds() / 1e3
    return 1.0


_DETAIL_TYPES: dict[str, type[message.Message]] = {
    "BadRequest": error_details_pb2.BadRequest,
    "ResourceInfo": error_details_pb2.ResourceInfo,
    "RetryInfo": error_details_pb2.RetryInfo,
}


def _details(error: grpc.aio.AioRpcError) -> dict[str, message.Message]:
    """Known rich details by type name; whatever is malformed is left out."""
    found: dict[str, message.Message] = {}
    for key, value in list(error.trailing_metadata()):  # type: ignore[call-overload]
        if key != DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            for packed in status_pb2.Status.FromString(value).details:
                detail = _DETAIL_TYPES.get(packed.type_url.rsplit(".", 1)[-1], status_pb2.Status)()
                if packed.Unpack(detail):
                    found[detail.DESCRIPTOR.name] = detail
        except message.DecodeError:
            continue
    return found
