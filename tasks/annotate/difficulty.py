"""Difficulty of a task for a model: pass rate, mean reward and a confidence interval.

Invariants: an unscored sample (null score) is in no numerator and no denominator; the figures do
not depend on the order of the rewards; below `min_scored` scored samples they are null, never 0.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tasks.annotate.config import AnnotateConfig

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


class Scored(NamedTuple):
    """One reward as far as difficulty needs it."""

    score: float | None
    binary: bool


def passed(score: float | None, binary: bool, pass_mark: float) -> bool:
    """Whether an answer counts as right: score 1 for a binary kind, above the mark else."""
    if score is None:
        return False
    return score == 1.0 if binary else score > pass_mark


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate of k in n; it stays inside [0, 1] at k = 0 and k = n too."""
    if not 0 <= k <= n or n == 0:
        raise ValueError(f"wilson needs 0 <= k <= n and n > 0, got k = {k}, n = {n}")
    z2 = Z95 * Z95
    rate = k / n
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # at the ends the formula gives the end exactly, rounding does not
    low = 0.0 if k == 0 else max(0.0, middle - half)
    high = 1.0 if k == n else min(1.0, middle + half)
    return low, high


def difficulty_rows(
    planned: Mapping[str, tuple[str, str]],
    rewards: Iterable[tuple[str, Scored]],
    config: AnnotateConfig,
) -> list[dict[str, Any]]:
    """One row per planned (task, model), sorted.

    `planned` maps a trace id to its (task_id, model); `rewards` are (trace id, reward). A reward of
    a trace that is not planned does not count.
    """
    requested: dict[tuple[str, str], int] = defaultdict(int)
    for pair in planned.values():
        requested[pair] += 1
    scored: dict[tuple[str, str], dict[str, Scored]] = defaultdict(dict)
    for trace_id, reward in rewards:
        if trace_id in planned and reward.score is not None:
            scored[planned[trace_id]][trace_id] = reward
    return [
        _row(pair, requested[pair], list(scored[pair].values()), config)
        for pair in sorted(requested)
    ]


def _row(
    pair: tuple[str, str], requested: int, rewards: list[Scored], config: AnnotateConfig
) -> dict[str, Any]:
    n = len(rewards)
    k = sum(passed(reward.score, reward.binary, config.pass_mark) for reward in rewards)
    row: dict[str, Any] = {
        "task_id": pair[0],
        "model": pair[1],
        "n_requested": requested,
        "n_scored": n,
        "k_passed": k,
        "avg_reward": None,
        "pass_rate": None,
        "ci_low": None,
        "ci_high": None,
    }
    if n >= config.min_scored:
        low, high = wilson(k, n)
        # fsum: exact, so the mean does not depend on the order in which shards arrive
        mean = math.fsum(reward.score for reward in rewards if reward.score is not None) / n
        row |= {"avg_reward": mean, "pass_rate": k / n, "ci_low": low, "ci_high": high}
    return row
