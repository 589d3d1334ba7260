"""A whole engine without sockets, for tests and benchmarks of model arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trunkline.cache.block_hash import seed_hash
from trunkline.cache.block_pool import BlockPool
from trunkline.config import EngineConfig
from trunkline.engine.engine import Engine
from trunkline.engine.kv_store import KvStore
from trunkline.engine.model_runner import Model, ModelRunner
from trunkline.engine.request import Event, Failed, Job, NewTokens, Request, Sampling
from trunkline.engine.scheduler import Outputs, Scheduler


class OfflineEngine:
    """Stepped on the caller's thread. Requests are submitted first and run together by run()."""

    def __init__(self, model: Model, config: EngineConfig, dtype: torch.dtype = torch.float32) -> None:
        blocks = config.num_blocks or 256
        self.pool = BlockPool(blocks)
        self.store = KvStore(model.config, blocks=blocks, block_size=config.block_size, dtype=dtype)
        self._block_size = config.block_size
        self.scheduler = Scheduler(
            config, self.pool, max_model_len=model.config.max_position, eos_token_ids=model.config.eos_token_ids
        )
        runner = ModelRunner(model, self.store, config.block_size)
        self.engine = Engine(self.scheduler, self.pool, runner, self._deliver)

    def submit(self, token_ids: Sequence[int], sampling: Sampling) -> tuple[Request, list[int]]:
        """The request and the list that its tokens are appended to."""
        answer: list[int] = []

        def sink(event: Event) -> None:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, NewTokens):
                answer.extend(event.ids)

        request = Request(
            request_id="offline",
            token_ids=token_ids,
            sampling=sampling,
            job=Job.FULL,
            block_size=self._block_size,
            hash_seed=seed_hash(b"offline"),
            sink=sink,
        )
        self.engine.submit(request)
        return request, answer

    def run(self) -> None:
        """Until everything is answered; checks all books after every step."""
        while self.engine.step():
            self.engine.check_integrity()

    def generate(self, token_ids: Sequence[int], sampling: Sampling) -> list[int]:
        _, answer = self.submit(token_ids, sampling)
        self.run()
        return answer

    def _deliver(self, outputs: Outputs) -> None:
        for request, event in outputs:
            request.sink(event)
