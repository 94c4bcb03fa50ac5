"""What is reported of the policy loss: figures of each token, summed up by groups of tokens.

Invariant: sums add up over rows and ranks, and maxima are the highest of theirs, so figures do not
depend on how a step is cut into pieces.
"""

import math

import torch
from torch import Tensor

from tasks.train.objective.config import ObjectiveConfig

COLUMNS = (
    "tokens",
    "clip_low",
    "clip_high",
    "clip_delta",
    "clip_fraction",
    "masked",
    "masked_pos",
    "masked_neg",
    "ratio",
    "update_kl",
    "mismatch_ratio",
    "mismatch_kl",
    "mismatch_kl_square",
    "correction",
    "dropped",
    "kl",
    "entropy",
)
"""tokens: 1. clip_*: without gradient by the lower, upper, two-sided or any bound. dropped: of
weight 0 by the correction. masked: clipped or dropped; of them, those of good and of bad samples.
ratio: pi / pi_old. update_kl: k3 of pi_old against pi. mismatch_ratio: pi_old / mu. mismatch_kl: k3
of mu against pi_old. correction: weight. kl: k3 of pi against the reference."""
PEAKS = ("ratio", "mismatch_kl", "mismatch_ratio")
"""Columns of which the highest value is reported too."""
_PEAKS = [COLUMNS.index(name) for name in PEAKS]


@torch.no_grad()
def token_figures(
    ratio: Tensor,
    off_policy: Tensor,
    correction: Tensor,
    advantage: Tensor,
    kl: Tensor | None,
    entropy: Tensor | None,
    config: ObjectiveConfig,
) -> Tensor:
    """COLUMNS of loss tokens, float32 [M, len(COLUMNS)].

    `ratio` is pi / pi_old, `off_policy` is log(pi_old / mu); None counts as 0 at every token.
    """
    good, bad = advantage > 0, advantage < 0
    zeros = torch.zeros_like(ratio)
    low, high = bad & (ratio < 1 - config.clip_low), good & (ratio > 1 + config.clip_high)
    delta = bad & (ratio > (math.inf if config.delta is None else config.delta))
    clipped, dropped = low | high | delta, correction == 0
    masked = clipped | dropped
    mismatch_ratio = off_policy.exp()
    mismatch = mismatch_ratio - off_policy - 1
    columns = (
        torch.ones_like(ratio),
        low,
        high,
        delta,
        clipped,
        masked,
        masked & good,
        masked & bad,
        ratio,
        ratio - ratio.log() - 1,
        mismatch_ratio,
        mismatch,
        mismatch.square(),
        correction,
        dropped,
        zeros if kl is None else kl,
        zeros if entropy is None else entropy,
    )
    return torch.stack([column.to(torch.float32) for column in columns], dim=1)


def by_group(figures: Tensor, groups: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sums [count, len(COLUMNS)] and maxima [count, len(PEAKS)] of the groups 0 to count - 1.

    `groups`, int64 [M], is the group of each token; a group without tokens has zeros.
    """
    sums = figures.new_zeros(count, len(COLUMNS)).index_add(0, groups, figures)
    peaks = figures[:, _PEAKS]
    place = groups[:, None].expand_as(peaks)
    return sums, peaks.new_zeros(count, len(PEAKS)).scatter_reduce(0, place, peaks, "amax")


def summarise(sums: Tensor, maxima: Tensor) -> dict[str, float]:
    """Means per loss token (`tokens` stays a count) and maxima by name, of one group.

    mismatch_kl_std: over tokens. masked_advantage_pos, _neg: share of the masked tokens.
    """
    values = dict(zip(COLUMNS, sums.tolist(), strict=True))
    tokens = values.pop("tokens")
    masked = max(1.0, values["masked"])
    shares = {f"masked_advantage_{side}": values.pop(f"masked_{side}") for side in ("pos", "neg")}
    means = {name: value / max(1.0, tokens) for name, value in values.items()}
    square = means.pop("mismatch_kl_square")
    return {
        "tokens": tokens,
        **means,
        **{name: value / masked for name, value in shares.items()},
        "mismatch_kl_std": math.sqrt(max(0.0, square - means["mismatch_kl"] ** 2)),
        **{f"{name}_max": value for name, value in zip(PEAKS, maxima.tolist(), strict=True)},
    }
