"""From logits to tokens.

Randomness is a function of (seed, choice index, token position), never of what else ran: a request that moves, is
preempted or retried draws the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trunkline.errors import Internal, TrunklineError


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What one new token depends on besides its logits."""

    temperature: float
    seed: int
    #: Index of the new token in prompt + answer.
    position: int
    choice: int = 0


def sample(logits_SV: Tensor, draws: Sequence[Draw]) -> list[int | TrunklineError]:
    """One token per row of `logits_SV` [sequences, vocab] float32; an error for a row that is not finite.

    Temperature 0 takes the largest logit (the first of equals). Else the Gumbel-max trick: argmax(logits / T + g)
    with g = -log(-log u) is a draw from softmax(logits / T) (Gumbel 1954; Maddison et al. 2014, "A* Sampling").
    """
    greedy = logits_SV.argmax(dim=-1).tolist()
    finite = torch.isfinite(logits_SV).all(dim=-1).tolist()
    tokens: list[int | TrunklineError] = []
    for row, draw in enumerate(draws):
        if not finite[row]:
            tokens.append(Internal("the model's logits are not finite; the request was stopped"))
        elif draw.temperature <= 0:
            tokens.append(int(greedy[row]))
        else:
            noise = torch.from_numpy(gumbel_noise(draw, logits_SV.shape[-1]))
            tokens.append(int((logits_SV[row].double() / draw.temperature + noise).argmax()))
    return tokens


def gumbel_noise(draw: Draw, vocab: int) -> np.ndarray:
    """[vocab] float64 standard Gumbel noise from Philox (Salmon et al. 2011), keyed by seed, counted by position."""
    bits = np.random.Philox(key=draw.seed % 2**64, counter=[0, 0, draw.choice, draw.position])
    uniform = np.random.Generator(bits).random(vocab)
    # random() may return 0, whose logarithm is not finite.
    return -np.log(-np.log(np.maximum(uniform, np.finfo(np.float64).tiny)))
