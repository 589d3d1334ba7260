"""The Inference service: what clients call."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack

import grpc.aio
from grpc.aio import ServicerContext

from trunkline.cache.block_hash import ExtraKeyKind, hash_blocks, seed_hash
from trunkline.config import RouterConfig
from trunkline.detokenizer import IncrementalDetokenizer
from trunkline.errors import TrunklineError, Unavailable
from trunkline.index.follower import IndexFollower, NodeView
from trunkline.log import request_id as log_request_id
from trunkline.router.channels import Channels
from trunkline.router.cluster_view import ClusterView
from trunkline.router.driver import FlowDriver
from trunkline.router.flow import Emit, Ledger, new_ledger, request_flow
from trunkline.router.load import DispatchedLoad
from trunkline.router.policy import Decision, choose
from trunkline.router.request import RouterRequest
from trunkline.router.validate import check_model, check_salt, prompt_tokens, resolve_sampling
from trunkline.rpc.status import from_rpc_error
from trunkline.tokenizer import Tokenizer
from trunkline.v1 import common_pb2, inference_pb2, nodes_pb2

STATE_TIMEOUT_S = 2.0


class InferenceService:
    def __init__(self, config: RouterConfig, tokenizer: Tokenizer, follower: IndexFollower, model: str) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._follower = follower
        self.load = DispatchedLoad()
        self.view = ClusterView(follower, self.load, model)
        self.channels = Channels()
        self.state = inference_pb2.RouterState()
        self.draining = False

    # -- Generate

    async def Generate(
        self, message: inference_pb2.GenerateRequest, context: ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        received = time.monotonic()
        if self.draining:
            raise Unavailable("this router is draining")
        request, kind = await self._prepare(message)
        log_request_id.set(request.id)
        await context.send_initial_metadata((("x-request-id", request.id),))
        decision = self._route(request, kind)
        self.state.running_requests += 1
        ledger = new_ledger(request, decision)
        outcome = "cancelled"
        try:
            yield _started(request, ledger)
            async for response in self._answer(request, decision, ledger, context.time_remaining(), received):
                yield response
            outcome = "finished"
        except TrunklineError:
            outcome = "failed"
            raise
        finally:
            self._count(outcome, ledger)

    async def _prepare(self, message: inference_pb2.GenerateRequest) -> tuple[RouterRequest, NodeView]:
        """Everything that can be refused is refused here, before any node hears of it."""
        kind = self.view.main_kind()
        limits = self.view.limits(kind)
        check_model(message.model, limits)
        salt = check_salt(message.cache_salt)
        token_ids = await asyncio.to_thread(prompt_tokens, message, self._tokenizer, limits)
        sampling = resolve_sampling(message.sampling, len(token_ids), limits)
        keys = {0: [(int(ExtraKeyKind.CACHE_SALT), salt)]} if salt else {}
        fingerprint = bytes.fromhex(kind.record.fingerprint)
        request = RouterRequest(
            id=uuid.uuid4().hex,
            token_ids=token_ids,
            sampling=sampling,
            extra_keys=[common_pb2.ExtraKey(block=0, kind=k, value=v) for k, v in keys.get(0, [])],
            block_hashes=hash_blocks(token_ids, kind.record.block_size, seed_hash(fingerprint), keys),
            fingerprint=fingerprint,
            eos_token_ids=self._tokenizer.eos_token_ids,
        )
        return request, kind

    def _route(self, request: RouterRequest, kind: NodeView) -> Decision:
        # A hit never covers the last token, so a prompt of whole blocks counts one block less.
        hittable = (len(request.token_ids) - 1) // kind.record.block_size
        return choose(
            self.view.candidates(kind, request.block_hashes[:hittable]),
            prompt_tokens=len(request.token_ids),
            block_size=kind.record.block_size,
            key=request.block_hashes[0] if request.block_hashes else repr(request.token_ids).encode(),
            balance_factor=self._config.balance_factor,
        )

    async def _answer(
        self,
        request: RouterRequest,
        decision: Decision,
        ledger: Ledger,
        timeout_s: float | None,
        received: float,
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        driver = FlowDriver(self.channels, decision, ledger, timeout_s)
        text = IncrementalDetokenizer(self._tokenizer.token_bytes)
        with self.load.decoding(decision.decode.epoch), ExitStack() as prefilling:
            if decision.prefill is not None:
                prefilling.enter_context(self.load.prefilling(decision.prefill.epoch, _uncached(request, decision)))
            try:
                async for action in driver.run(request_flow(request, decision, ledger)):
                    if isinstance(action, Emit):
                        prefilling.close()
                        _book_tokens(ledger.usage, len(action.token_ids), received)
                        yield _chunk(action.token_ids, text.push(action.token_ids))
                        continue
                    if rest := text.flush():
                        yield _chunk((), rest)
                    ledger.usage.total_ms = (time.monotonic() - received) * 1e3
                    finished = inference_pb2.Finished(reason=action.reason, usage=ledger.usage)
                    yield inference_pb2.GenerateResponse(finished=finished)
            finally:
                if driver.failed_node is not None:
                    self._follower.suspect(driver.failed_node.epoch)
                await driver.aclose()

    def _count(self, outcome: str, ledger: Ledger) -> None:
        self.state.running_requests -= 1
        name = f"{outcome}_requests"
        setattr(self.state, name, getattr(self.state, name) + 1)
        if outcome == "finished":
            self.state.prompt_tokens += ledger.usage.prompt_tokens
            self.state.cached_tokens += ledger.usage.cached_local + ledger.usage.cached_peer

    # -- the rest

    async def Tokenize(
        self, message: inference_pb2.TokenizeRequest, context: ServicerContext
    ) -> inference_pb2.TokenizeResponse:
        limits = self.view.limits(self.view.main_kind())
        check_model(message.model, limits)
        ids = await asyncio.to_thread(prompt_tokens, message, self._tokenizer, limits)
        return inference_pb2.TokenizeResponse(token_ids=ids)

    async def ListModels(
        self, message: inference_pb2.ListModelsRequest, context: ServicerContext
    ) -> inference_pb2.ListModelsResponse:
        models = {}
        for view in self.view.usable():
            record = view.record
            models[record.fingerprint] = inference_pb2.Model(
                name=record.model,
                fingerprint=record.fingerprint,
                context_length=record.max_model_len,
                vocab_size=record.vocab_size,
            )
        return inference_pb2.ListModelsResponse(models=models.values())

    async def ClusterState(
        self, message: inference_pb2.ClusterStateRequest, context: ServicerContext
    ) -> inference_pb2.ClusterStateResponse:
        views = sorted(self._follower.nodes.values(), key=lambda view: (view.record.role, view.record.name))
        states = await asyncio.gather(*(self._node_state(view, message.verify) for view in views))
        self.state.index_entries = self._follower.replica.entries
        return inference_pb2.ClusterStateResponse(nodes=states, router=self.state)

    async def _node_state(self, view: NodeView, verify: bool) -> nodes_pb2.NodeState:
        record = view.record
        try:
            request = nodes_pb2.StateRequest(verify=verify)
            state = await self.channels.kv_source(record.address).State(request, timeout=STATE_TIMEOUT_S)
            state.unusable_reason = self.view.unusable_reason(view)
        except grpc.aio.AioRpcError as error:
            state = nodes_pb2.NodeState(
                node=common_pb2.NodeRef(name=record.name, epoch=record.epoch),
                address=record.address,
                model=record.model,
                unusable_reason=from_rpc_error(error, node=record.name).message,
            )
        return state


def _uncached(request: RouterRequest, decision: Decision) -> int:
    """Tokens that the chosen prefill node is expected to compute."""
    assert decision.prefill is not None
    return max(1, len(request.token_ids) - decision.prefill.hit_blocks * decision.block_size)


def _started(request: RouterRequest, ledger: Ledger) -> inference_pb2.GenerateResponse:
    started = inference_pb2.Started(request_id=request.id, prompt_tokens=len(request.token_ids))
    if ledger.usage.HasField("prefill_node"):
        started.prefill_node.CopyFrom(ledger.usage.prefill_node)
    started.decode_node.CopyFrom(ledger.usage.decode_node)
    return inference_pb2.GenerateResponse(started=started)


def _chunk(token_ids: tuple[int, ...], text: str) -> inference_pb2.GenerateResponse:
    return inference_pb2.GenerateResponse(chunk=inference_pb2.Chunk(token_ids=token_ids, text=text))


def _book_tokens(usage: common_pb2.Usage, count: int, received: float) -> None:
    if not usage.completion_tokens:
        usage.ttft_ms = (time.monotonic() - received) * 1e3
    usage.completion_tokens += count
