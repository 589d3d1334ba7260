"""The cluster as the router may use it: live nodes from the index, joined with what this router has sent them."""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.errors import Unavailable
from trunkline.index.follower import IndexFollower, NodeView
from trunkline.router.load import DispatchedLoad
from trunkline.router.policy import Candidate
from trunkline.router.validate import Limits


class ClusterView:
    def __init__(self, directory: IndexFollower, load: DispatchedLoad, model: str) -> None:
        self._directory = directory
        self._load = load
        self._model = model

    def unusable_reason(self, view: NodeView) -> str:
        """Why nothing is sent to a node, in words; empty for one that is used."""
        if view.record.model != self._model:
            return f"serves {view.record.model}, this router {self._model}"
        if view.suspect:
            return "its last call failed; waiting for its next heartbeat"
        if view.load is not None and view.load.draining:
            return "draining"
        return ""

    def usable(self) -> list[NodeView]:
        return [view for view in self._directory.nodes.values() if not self.unusable_reason(view)]

    @property
    def ready(self) -> bool:
        """At least one pair of nodes fits together."""
        try:
            self.main_kind()
        except Unavailable:
            return False
        return True

    def main_kind(self) -> NodeView:
        """A node of the kind that requests are prepared for: the one with most nodes that can serve.

        Raises Unavailable.
        """
        views = self.usable()
        counts: dict[str, list[NodeView]] = {}
        for view in views:
            counts.setdefault(view.record.fingerprint, []).append(view)
        served = [group for group in counts.values() if _can_serve({view.record.role for view in group})]
        if not served:
            raise Unavailable("no prefill and decode node that fit together are up")
        return max(served, key=lambda group: (len(group), group[0].record.started_at))[0]

    def limits(self, kind: NodeView) -> Limits:
        records = [v.record for v in self.usable() if v.record.fingerprint == kind.record.fingerprint]
        return Limits(
            model=kind.record.model,
            vocab_size=kind.record.vocab_size,
            context_length=min(r.max_model_len for r in records),
            pool_tokens=min(r.num_blocks * r.block_size for r in records),
        )

    def candidates(self, kind: NodeView, block_hashes: Sequence[bytes]) -> list[Candidate]:
        hits = self._directory.replica.longest_prefixes(block_hashes)
        return [
            self._candidate(view, hits.get(view.record.epoch, 0))
            for view in self.usable()
            if view.record.fingerprint == kind.record.fingerprint
        ]

    def _candidate(self, view: NodeView, hit_blocks: int) -> Candidate:
        record = view.record
        return Candidate(
            epoch=record.epoch,
            name=record.name,
            address=record.address,
            role=record.role,
            kind=(record.fingerprint, record.protocol, record.block_size, record.block_bytes),
            hit_blocks=hit_blocks,
            queued_tokens=self._load.prefill_tokens(record.epoch),
            decodes=max(self._load.decodes(record.epoch), view.load.running if view.load else 0),
        )


def _can_serve(roles: set[str]) -> bool:
    return "both" in roles or {"prefill", "decode"} <= roles
