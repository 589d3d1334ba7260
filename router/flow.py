"""One request's way through the cluster, as a generator that does no I/O.

It is sent events and yields lists of actions; the driver carries them out. Returns when the answer is complete;
raises what the client is to be told. Whatever it was doing then, the driver ends all calls and releases the leases
in `Ledger.leases`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from trunkline.errors import Internal, TrunklineError
from trunkline.router.policy import Candidate, Decision
from trunkline.router.request import RouterRequest
from trunkline.v1 import common_pb2, nodes_pb2

# -- what happens


@dataclass(frozen=True)
class FromDecode:
    output: nodes_pb2.DecodeOutput


@dataclass(frozen=True)
class FromPrefill:
    event: nodes_pb2.PrefillEvent


@dataclass(frozen=True)
class CallFailed:
    """A node's call ended before its time."""

    node: Candidate
    error: TrunklineError


Event = FromDecode | FromPrefill | CallFailed

# -- what is to be done


@dataclass(frozen=True)
class OpenDecode:
    start: nodes_pb2.DecodeStart


@dataclass(frozen=True)
class OpenPrefill:
    request: nodes_pb2.PrefillRequest


@dataclass(frozen=True)
class ToDecode:
    message: nodes_pb2.DecodeInput


@dataclass(frozen=True)
class Emit:
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Finish:
    reason: common_pb2.FinishReason


Action = OpenDecode | OpenPrefill | ToDecode | Emit | Finish
Flow = Generator[list[Action], Event, None]


@dataclass
class Ledger:
    """What the request has cost so far, and what is still owed to holders."""

    usage: common_pb2.Usage
    #: lease id -> address of its holder's KvSource.
    leases: dict[str, str] = field(default_factory=dict)


def new_ledger(request: RouterRequest, decision: Decision) -> Ledger:
    usage = common_pb2.Usage(prompt_tokens=len(request.token_ids))
    for node, ref in ((decision.prefill, usage.prefill_node), (decision.decode, usage.decode_node)):
        if node is not None:
            ref.name, ref.epoch = node.name, node.epoch
    return Ledger(usage)


def request_flow(
    request: RouterRequest, decision: Decision, ledger: Ledger, clock: Callable[[], float] = time.monotonic
) -> Flow:
    """The whole way. `ledger` is written as things become known."""
    if decision.prefill is None:
        yield from _decode(request, ledger, [OpenDecode(_decode_start(request, local=True))])
        return
    if request.sampling.max_tokens == 1:
        first, _ = yield from _prefill(request, decision, ledger, skip=0, decode_open=False)
        yield [Emit((first,)), Finish(_end_reason(request, first))]
        return
    event = yield [OpenDecode(_decode_start(request, local=False))]
    reserved = _decode_output(event, "reserved").reserved
    ledger.usage.decode_cached_blocks = reserved.cached_blocks
    first, done = yield from _prefill(request, decision, ledger, skip=reserved.cached_blocks, decode_open=True)
    reason = _end_reason(request, first)
    if reason == common_pb2.FINISH_REASON_STOP:
        yield [Emit((first,)), Finish(reason)]
        return
    finished = nodes_pb2.PrefillFinished(first_token=first, handles=done.handles)
    yield from _decode(request, ledger, [Emit((first,)), ToDecode(nodes_pb2.DecodeInput(finished=finished))])


def _prefill(
    request: RouterRequest, decision: Decision, ledger: Ledger, *, skip: int, decode_open: bool
) -> Generator[list[Action], Event, tuple[int, nodes_pb2.PrefillDone]]:
    """Until the first token is there. Handles are passed on as they come."""
    actions: list[Action] = [OpenPrefill(_prefill_request(request, decision, skip))]
    while True:
        event = yield actions
        if not isinstance(event, FromPrefill):
            raise _unexpected(event)
        handles = event.event.handles if event.event.HasField("handles") else event.event.done.handles
        if handles.lease_id:
            ledger.leases[handles.lease_id] = handles.address
        if event.event.HasField("done"):
            done = event.event.done
            _book_prefill(ledger.usage, done)
            return done.first_token, done
        passed_on = decode_open and handles.handles
        actions = [ToDecode(nodes_pb2.DecodeInput(handles=handles))] if passed_on else []


def _decode(request: RouterRequest, ledger: Ledger, actions: list[Action]) -> Flow:
    """Until the answer's end."""
    while True:
        event = yield actions
        output = _decode_output(event)
        if output.HasField("tokens"):
            actions = [Emit(tuple(output.tokens.ids))]
        elif output.HasField("finished"):
            _book_decode(ledger.usage, output.finished)
            if not output.finished.recomputed:
                ledger.leases.clear()  # the decode node has all it wanted and released them itself
            yield [Finish(output.finished.reason)]
            return
        else:
            actions = []


def _decode_output(event: Event, kind: str | None = None) -> nodes_pb2.DecodeOutput:
    if not isinstance(event, FromDecode) or (kind and not event.output.HasField(kind)):  # type: ignore[arg-type]
        raise _unexpected(event)
    return event.output


def _unexpected(event: Event) -> TrunklineError:
    if isinstance(event, CallFailed):
        return event.error
    return Internal(f"a node sent a {type(event).__name__} event out of order")


def _end_reason(request: RouterRequest, first: int) -> common_pb2.FinishReason:
    if first in request.eos_token_ids and not request.sampling.ignore_eos:
        return common_pb2.FINISH_REASON_STOP
    return common_pb2.FINISH_REASON_LENGTH


def _book_prefill(usage: common_pb2.Usage, done: nodes_pb2.PrefillDone) -> None:
    if done.cached_local + done.cached_peer + done.computed != usage.prompt_tokens:
        raise Internal("the prefill node's ledger does not sum to the prompt")
    usage.cached_local, usage.cached_peer, usage.computed = done.cached_local, done.cached_peer, done.computed
    usage.queue_ms += done.queue_ms
    usage.prefill_ms = done.prefill_ms


def _book_decode(usage: common_pb2.Usage, finished: nodes_pb2.DecodeFinished) -> None:
    usage.transferred_blocks = finished.transferred_blocks
    usage.recomputed = finished.recomputed
    usage.transfer_ms = finished.transfer_ms
    if not usage.HasField("prefill_node"):
        usage.cached_local, usage.computed = finished.cached_local, finished.computed
        usage.prefill_ms = finished.prefill_ms


def _decode_start(request: RouterRequest, *, local: bool) -> nodes_pb2.DecodeStart:
    return nodes_pb2.DecodeStart(
        request_id=request.id,
        fingerprint=request.fingerprint,
        token_ids=request.token_ids,
        sampling=request.sampling,
        extra_keys=request.extra_keys,
        compute_locally=local,
    )


def _prefill_request(request: RouterRequest, decision: Decision, skip: int) -> nodes_pb2.PrefillRequest:
    message = nodes_pb2.PrefillRequest(
        request_id=request.id,
        fingerprint=request.fingerprint,
        token_ids=request.token_ids,
        sampling=request.sampling,
        extra_keys=request.extra_keys,
        skip_blocks=skip,
    )
    if decision.peer is not None:
        message.peer.node.name, message.peer.node.epoch = decision.peer.name, decision.peer.epoch
        message.peer.address, message.peer.blocks = decision.peer.address, decision.peer.hit_blocks
    return message
