"""Where a request goes: pure, state in, decision out.

The prefill node with the longest prefix, as long as its queue is within a bound of the mean; of equals the least
loaded, and then the one that rendezvous hashing names for the prompt's first block, so that the same cold prompt
goes to the same node and different ones spread. The decode node with the fewest requests; of equals the one that
holds more of the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from trunkline.errors import Unavailable

#: A peer's prefix is worth a pull from this many more blocks on; below it computing is as quick.
PEER_MIN_BLOCKS = 8


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One usable node as the policy sees it."""

    epoch: str
    name: str
    address: str
    role: str
    #: Nodes pair only with the same.
    kind: tuple[str, int, int, int]
    #: Leading blocks of the prompt that it holds.
    hit_blocks: int
    #: Uncached prompt tokens this router has sent there and not got back.
    queued_tokens: int
    #: Requests it decodes, by this router's count or its own, whichever is more.
    decodes: int


@dataclass(frozen=True, kw_only=True)
class Decision:
    prefill: Candidate | None
    decode: Candidate
    block_size: int
    #: A node that holds more of the prefix than `prefill`, worth pulling from.
    peer: Candidate | None = None


def choose(
    candidates: Sequence[Candidate], *, prompt_tokens: int, block_size: int, key: bytes, balance_factor: float
) -> Decision:
    """`key` spreads cold prompts: the first block's hash. Raises Unavailable when no pair of nodes fits together."""
    decoders = [c for c in candidates if c.role in ("decode", "both")]
    prefillers = [c for c in candidates if c.role == "prefill" and any(d.kind == c.kind for d in decoders)]
    if not prefillers:
        alone = [c for c in decoders if c.role == "both"]
        if not alone:
            raise Unavailable("no prefill and decode node that fit together are up")
        return Decision(prefill=None, decode=_choose_decode(alone), block_size=block_size)
    prefill = _choose_prefill(prefillers, prompt_tokens, block_size, key, balance_factor)
    decode = _choose_decode([d for d in decoders if d.kind == prefill.kind])
    peer = _choose_peer(prefill, candidates)
    return Decision(prefill=prefill, decode=decode, block_size=block_size, peer=peer)


def queue_bound(candidates: Sequence[Candidate], prompt_tokens: int, factor: float) -> float:
    """Most tokens that a node's queue may hold, this prompt included, before affinity yields: `factor` times the mean
    queue with this prompt on top, and never less than one prompt, or nobody could take it."""
    mean = (sum(c.queued_tokens for c in candidates) + prompt_tokens) / len(candidates)
    return max(factor * mean, prompt_tokens)


def _choose_prefill(
    nodes: Sequence[Candidate], prompt_tokens: int, block_size: int, key: bytes, factor: float
) -> Candidate:
    def uncached(node: Candidate) -> int:
        return max(1, prompt_tokens - node.hit_blocks * block_size)

    bound = queue_bound(nodes, prompt_tokens, factor)
    within = [n for n in nodes if n.queued_tokens + uncached(n) <= bound]
    pool = within or [min(nodes, key=lambda n: n.queued_tokens)]
    return min(pool, key=lambda n: (-n.hit_blocks, n.queued_tokens, _rank(key, n)))


def _choose_decode(nodes: Sequence[Candidate]) -> Candidate:
    return min(nodes, key=lambda n: (n.decodes, -n.hit_blocks, n.epoch))


def _choose_peer(prefill: Candidate, candidates: Sequence[Candidate]) -> Candidate | None:
    others = [c for c in candidates if c.kind == prefill.kind and c.epoch != prefill.epoch]
    best = max(others, key=lambda c: c.hit_blocks, default=None)
    if best is None or best.hit_blocks < prefill.hit_blocks + PEER_MIN_BLOCKS:
        return None
    return best


def _rank(key: bytes, node: Candidate) -> bytes:
    """Rendezvous hashing (Thaler and Ravishankar 1998): each key has its own order of the nodes."""
    return blake2b(key + node.name.encode(), digest_size=8).digest()
