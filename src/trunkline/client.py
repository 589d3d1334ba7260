"""A thin synchronous client of the Inference service; errors come as trunkline.errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import grpc
import grpc.aio

from trunkline.errors import TrunklineError
from trunkline.rpc.client import OPTIONS
from trunkline.rpc.status import from_rpc_error
from trunkline.v1 import common_pb2, inference_pb2, inference_pb2_grpc


class Client:
    """One connection to a router. Close it, or use it in a with statement."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._stub = inference_pb2_grpc.InferenceStub(self._channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()

    def generate(
        self, request: inference_pb2.GenerateRequest, timeout_s: float | None = None
    ) -> Iterator[inference_pb2.GenerateResponse]:
        """The answer's events. Closing the iterator cancels the request. Raises TrunklineError."""
        call = self._stub.Generate(request, timeout=timeout_s)
        try:
            yield from call
        except grpc.RpcError as error:
            raise _mapped(error) from error
        finally:
            call.cancel()

    def tokenize(self, text: str) -> list[int]:
        try:
            return list(self._stub.Tokenize(inference_pb2.TokenizeRequest(text=text), timeout=30).token_ids)
        except grpc.RpcError as error:
            raise _mapped(error) from error

    def state(self, *, verify: bool = False) -> inference_pb2.ClusterStateResponse:
        try:
            return self._stub.ClusterState(inference_pb2.ClusterStateRequest(verify=verify), timeout=10)
        except grpc.RpcError as error:
            raise _mapped(error) from error


def request_of(
    prompt: str | Sequence[int] | Sequence[tuple[str, str]],
    *,
    max_tokens: int | None = None,
    temperature: float = 0.0,
    seed: int | None = None,
    ignore_eos: bool = False,
    cache_salt: str = "",
) -> inference_pb2.GenerateRequest:
    """A request for text, token ids, or a chat of (role, content) pairs."""
    sampling = common_pb2.SamplingParams(temperature=temperature, ignore_eos=ignore_eos)
    if max_tokens is not None:
        sampling.max_tokens = max_tokens
    if seed is not None:
        sampling.seed = seed
    request = inference_pb2.GenerateRequest(sampling=sampling, cache_salt=cache_salt)
    if isinstance(prompt, str):
        request.text = prompt
    elif prompt and isinstance(prompt[0], tuple):
        for role, content in prompt:  # type: ignore[misc]
            request.chat.messages.add(role=role, content=content)
    else:
        request.tokens.ids.extend(prompt)  # type: ignore[arg-type]
        request.tokens.SetInParent()
    return request


def _mapped(error: grpc.RpcError) -> TrunklineError:
    code, details = error.code(), error.details()  # type: ignore[attr-defined]
    trailing = grpc.aio.Metadata(*(error.trailing_metadata() or ()))  # type: ignore[attr-defined]
    return from_rpc_error(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details, None))
