"""What every service shares: named faults, rich errors there and back, health, reflection."""

import asyncio

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from trunkline import errors
from trunkline.rpc.client import open_channel
from trunkline.rpc.parse import parse
from trunkline.rpc.server import RpcServer
from trunkline.rpc.status import CODES, code_of, from_rpc_error
from trunkline.v1 import inference_pb2, inference_pb2_grpc, nodes_pb2, nodes_pb2_grpc

INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["Inference"]
DECODE = nodes_pb2.DESCRIPTOR.services_by_name["DecodeNode"]


def every_error() -> list[type[errors.TrunklineError]]:
    found, todo = [], [errors.TrunklineError]
    while todo:
        cls = todo.pop()
        found += cls.__subclasses__()
        todo += cls.__subclasses__()
    return found


def test_every_error_has_a_code_of_its_own():
    assert set(every_error()) == set(CODES)
    assert len(set(CODES.values())) == len(CODES)


def bad_text(value: bytes) -> bytes:
    """A GenerateRequest whose second chat message's content is `value`."""
    good = inference_pb2.GenerateRequest()
    good.chat.messages.add(role="user", content="fine")
    good.chat.messages.add(role="user", content="@" * len(value))
    return good.SerializeToString().replace(b"@" * len(value), value)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (bad_text(b"caf\xe9 au lait"), "chat.messages[1].content"),
        (b"\x0a\x02\xff\xfe", "model"),
        (b"\xff\xff\xff\xff", "request"),
        (bad_text(b"ok")[:-1], "request"),
    ],
)
def test_bytes_that_are_no_message_are_named(data, field):
    with pytest.raises(errors.InvalidArgument) as caught:
        parse(inference_pb2.GenerateRequest, data)
    assert caught.value.field == field


class Servicer:
    """Raises what it is told to."""

    def __init__(self):
        self.error: Exception | None = None
        self.ended = asyncio.Event()

    async def Generate(self, request, context):
        try:
            yield inference_pb2.GenerateResponse(started=inference_pb2.Started(request_id="a"))
            if self.error:
                raise self.error
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def Tokenize(self, request, context):
        if self.error:
            raise self.error
        return inference_pb2.TokenizeResponse(token_ids=[1, 2])

    async def ListModels(self, request, context):
        return inference_pb2.ListModelsResponse()

    async def ClusterState(self, request, context):
        return inference_pb2.ClusterStateResponse()

    async def Decode(self, messages, context):
        async for message in messages:
            yield nodes_pb2.DecodeOutput(tokens=nodes_pb2.Tokens(ids=message.start.token_ids))


@pytest.fixture
async def served():
    servicer = Servicer()
    server = RpcServer("127.0.0.1:0")
    address = server.bind()
    server.add(INFERENCE, servicer)
    server.add(DECODE, servicer)
    await server.start()
    async with open_channel(address) as channel:
        yield servicer, server, channel
    await server.stop(0)


ERRORS = [
    errors.InvalidArgument("sampling.max_tokens", "must be at least 1, not -3"),
    errors.NotFound("model", "gpt-7", "this cluster serves smollm2"),
    errors.FailedPrecondition("fingerprints differ"),
    errors.ResourceExhausted("queue full", 2.5),
    errors.Unavailable("node prefill-0 went away", "prefill-0"),
    errors.DeadlineExceeded("too late"),
    errors.Cancelled("given up"),
    errors.Internal("see the log"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("streaming", [False, True])
async def test_an_error_crosses_the_wire_whole(served, error, streaming):
    servicer, _, channel = served
    servicer.error = error
    stub = inference_pb2_grpc.InferenceStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if streaming:
            async for _ in stub.Generate(inference_pb2.GenerateRequest()):
                pass
        else:
            await stub.Tokenize(inference_pb2.TokenizeRequest())
    assert caught.value.code() is code_of(error)
    back = from_rpc_error(caught.value)
    assert type(back) is type(error)
    assert back.message == error.message
    for name in ("field", "name", "what", "retry_after_s"):
        assert getattr(back, name, None) == getattr(error, name, None)


async def test_a_fault_of_ours_is_internal_and_tells_no_more_than_its_kind(served):
    servicer, _, channel = served
    servicer.error = KeyError("secret prompt")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await inference_pb2_grpc.InferenceStub(channel).Tokenize(inference_pb2.TokenizeRequest())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (caught.value.details() or "")


@pytest.mark.parametrize(
    ("path", "streams"),
    [
        ("/trunkline.v1.Inference/Tokenize", False),
        ("/trunkline.v1.Inference/Generate", False),
        ("/trunkline.v1.DecodeNode/Decode", True),
    ],
)
async def test_garbage_is_answered_and_the_next_call_works(served, path, streams):
    _, _, channel = served
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if streams:
            call = channel.stream_stream(path)(iter([b"\xff\xff\xff"]))
            async for _ in call:
                pass
        elif path.endswith("Generate"):
            async for _ in channel.unary_stream(path)(b"\xff\xff\xff"):
                pass
        else:
            await channel.unary_unary(path)(b"\xff\xff\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    stub = nodes_pb2_grpc.DecodeNodeStub(channel)
    sent = nodes_pb2.DecodeInput(start=nodes_pb2.DecodeStart(token_ids=[3, 4]))
    assert [list(m.tokens.ids) async for m in stub.Decode(iter([sent]))] == [[3, 4]]


async def test_a_cancelled_stream_runs_its_handlers_cleanup_at_once(served):
    servicer, _, channel = served
    call = inference_pb2_grpc.InferenceStub(channel).Generate(inference_pb2.GenerateRequest())
    await call.read()
    call.cancel()
    async with asyncio.timeout(5):
        await servicer.ended.wait()


async def test_messages_over_grpcs_default_limit_pass(served):
    _, _, channel = served
    stub = nodes_pb2_grpc.DecodeNodeStub(channel)
    ids = [4_000_000_000] * 1_500_000
    sent = nodes_pb2.DecodeInput(start=nodes_pb2.DecodeStart(token_ids=ids))
    assert isinstance(sent, Message)
    assert sent.ByteSize() > 4 << 20
    assert [len(m.tokens.ids) async for m in stub.Decode(iter([sent]))] == [len(ids)]


async def test_health_and_reflection_answer(served):
    _, server, channel = served
    health = health_pb2_grpc.HealthStub(channel)
    states = []
    for serving in (False, True):
        await server.set_serving(serving)
        states.append((await health.Check(health_pb2.HealthCheckRequest(service="trunkline.v1.Inference"))).status)
    assert states == [health_pb2.HealthCheckResponse.NOT_SERVING, health_pb2.HealthCheckResponse.SERVING]
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in reflection.ServerReflectionInfo(iter([request])):
        names = {service.name for service in answer.list_services_response.service}
        assert {"trunkline.v1.Inference", "trunkline.v1.DecodeNode", "grpc.health.v1.Health"} <= names


async def test_a_taken_port_is_said(served):
    _, server, _ = served
    with pytest.raises(OSError, match="cannot listen on"):
        RpcServer(server.address).bind()
