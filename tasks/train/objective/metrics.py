"""What is reported of the policy loss: token sums that add up over rows and ranks, and maxima."""

import math

import torch
from torch import Tensor

from tasks.train.objective.config import ObjectiveConfig

SUMS = (
    "tokens",
    "clip_low",
    "clip_high",
    "clip_delta",
    "clip_fraction",
    "ratio",
    "update_kl",
    "mismatch_kl",
    "correction",
    "dropped",
    "kl",
    "entropy",
)
"""tokens: loss tokens. clip_*: tokens without gradient by the lower, upper, two-sided or any bound.
ratio: pi / pi_old. update_kl: k3 of pi_old against pi. mismatch_kl: k3 of mu against pi_old.
correction: weights. dropped: tokens of weight 0. kl: k3 of pi against the reference."""
MAXIMA = ("ratio_max", "mismatch_kl_max", "mismatch_ratio_max")


@torch.no_grad()
def loss_metrics(
    ratio: Tensor,
    off_policy: Tensor,
    correction: Tensor,
    advantage: Tensor,
    kl: Tensor | None,
    entropy: Tensor | None,
    config: ObjectiveConfig,
) -> tuple[Tensor, Tensor]:
    """Sums [len(SUMS)] and maxima [len(MAXIMA)] over loss tokens [M], float32.

    `ratio` is pi / pi_old, `off_policy` is log(pi_old / mu); None counts as 0 at every token.
    """
    good, bad = advantage > 0, advantage < 0
    zeros = torch.zeros_like(ratio)
    low, high = bad & (ratio < 1 - config.clip_low), good & (ratio > 1 + config.clip_high)
    delta = bad & (ratio > (math.inf if config.delta is None else config.delta))
    mismatch_ratio = off_policy.exp()
    mismatch = mismatch_ratio - off_policy - 1
    columns = (
        torch.ones_like(ratio),
        low,
        high,
        delta,
        low | high | delta,
        ratio,
        ratio - ratio.log() - 1,
        mismatch,
        correction,
        correction == 0,
        zeros if kl is None else kl,
        zeros if entropy is None else entropy,
    )
    sums = torch.stack([column.sum(dtype=torch.float32) for column in columns])
    peaks = (ratio, mismatch, mismatch_ratio)
    empty = ratio.numel() == 0
    maxima = torch.stack([zeros.sum() if empty else peak.max() for peak in peaks])
    return sums, maxima.to(torch.float32)


def summarise(sums: Tensor, maxima: Tensor) -> dict[str, float]:
    """Means per loss token of summed SUMS (`tokens` stays a count), and the maxima, by name."""
    values = dict(zip(SUMS, sums.tolist(), strict=True))
    tokens = values.pop("tokens")
    means = {name: value / max(1.0, tokens) for name, value in values.items()}
    return {"tokens": tokens, **means, **dict(zip(MAXIMA, maxima.tolist(), strict=True))}
