"""A gRPC server as every Trunkline process runs it: services by descriptor, health, reflection, drain.

Handlers take messages, return messages and raise trunkline.errors; what goes over the wire for a malformed
message or an error is decided here once. Knows nothing of what the services do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import _async as health_aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from trunkline.errors import Internal, TrunklineError
from trunkline.rpc.parse import parse
from trunkline.rpc.status import code_of, trailing_metadata

log = logging.getLogger(__name__)

# A prompt as token ids passes gRPC's default of 4 MiB; this holds any context in use with room to spare.
MAX_MESSAGE_BYTES = 64 << 20
OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Two processes on one port would share its connections silently.
    ("grpc.so_reuseport", 0),
    # Peers ping every 10 s (rpc.client); the default would answer that with GOAWAY.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]


class RpcServer:
    """One listening socket: bind(), add() services, start(), stop(). One event loop owns it."""

    def __init__(self, listen: str) -> None:
        """`listen` is host:port, port 0 for any free one."""
        self._listen = listen
        self._server = grpc.aio.server(options=OPTIONS)
        self._health = health_aio.HealthServicer()
        self._names: list[str] = []
        self.address = listen

    def bind(self) -> str:
        """Takes the port and returns host:port. Raises OSError when it is taken."""
        host = self._listen.rpartition(":")[0]
        try:
            port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._listen}: {error}") from error
        if port == 0:
            raise OSError(f"cannot listen on {self._listen}")
        self.address = f"{host}:{port}"
        return self.address

    def add(self, descriptor: ServiceDescriptor, servicer: object) -> None:
        """Serves `descriptor` with `servicer`, which has a method per RPC, by its name. Before start()."""
        self._server.add_generic_rpc_handlers((_handlers(descriptor, servicer),))
        self._names.append(descriptor.full_name)

    async def start(self) -> None:
        """Answers calls from now on, health and reflection among them; not yet healthy."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        await self.set_serving(False)
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """What health checks answer, for the whole process and for each service."""
        state = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ["", *self._names]:
            await self._health.set(name, state)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, lets running ones end for `grace_s`, then cancels them."""
        await self.set_serving(False)
        await self._server.stop(grace_s)


def _handlers(descriptor: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
    methods = {m.name: _handler(m, getattr(servicer, m.name)) for m in descriptor.methods}
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)


def _handler(method: MethodDescriptor, function: Callable[..., Any]) -> grpc.RpcMethodHandler:
    """Wraps `function` for its kind of call. Requests stay bytes until inside, where a bad one can be answered."""
    request_cls = GetMessageClass(method.input_type)
    take = _stream_in(request_cls) if method.client_streaming else _single_in(request_cls)
    if method.server_streaming:
        make = (
            grpc.stream_stream_rpc_method_handler if method.client_streaming else grpc.unary_stream_rpc_method_handler
        )
        return make(_streaming(method, function, take), None, _serialize)
    make = grpc.stream_unary_rpc_method_handler if method.client_streaming else grpc.unary_unary_rpc_method_handler
    return make(_unary(method, function, take), None, _serialize)


def _single_in(cls: type[Message]) -> Callable[[Any], Any]:
    return lambda data: parse(cls, data)


def _stream_in(cls: type[Message]) -> Callable[[Any], Any]:
    async def messages(chunks: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for data in chunks:
            yield parse(cls, data)

    return messages


def _unary(
    method: MethodDescriptor, function: Callable[..., Awaitable[Message]], take: Callable[[Any], Any]
) -> Callable[..., Awaitable[Message]]:
    async def call(data: Any, context: grpc.aio.ServicerContext) -> Message:
        try:
            return await function(take(data), context)
        except Exception as error:
            return await _abort(method, error, context)

    return call


def _streaming(
    method: MethodDescriptor, function: Callable[..., AsyncIterator[Message]], take: Callable[[Any], Any]
) -> Callable[..., AsyncIterator[Message]]:
    async def call(data: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Message]:
        events = None
        try:
            events = function(take(data), context)
            async for message in events:
                yield message
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            await _abort(method, error, context)
        finally:
            # The handler's own finally must have run when the call is over, not when it is collected.
            if events is not None:
                await events.aclose()  # type: ignore[attr-defined]

    return call


async def _abort(method: MethodDescriptor, error: Exception, context: grpc.aio.ServicerContext) -> Any:
    """Ends the call with `error`. What is not a TrunklineError is a fault of ours: logged whole, told briefly."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, TrunklineError):
        log.error("%s failed", method.full_name, exc_info=error)
        error = Internal(f"{method.full_name} failed ({type(error).__name__}); the log of this process says why")
    await context.abort(code_of(error), error.message, trailing_metadata(error))


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
