"""Solve rates with intervals: avg@k, pass@k, Wilson.

Invariants: pure functions of counts; an interval lies within [0, 1] and holds its estimate; samples
of one task are never treated as independent of each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """A mean over tasks with its 95 % interval."""

    mean: float
    low: float
    high: float


def wilson(mean: float, trials: float, z: float = Z95) -> Estimate:
    """The score interval of a proportion (Wilson 1927); `trials` may be an effective number."""
    if trials <= 0 or not 0.0 <= mean <= 1.0:
        raise ValueError(f"mean {mean} of {trials} trials: needed are trials and a mean in [0, 1]")
    spread = z * z / trials
    centre = (mean + spread / 2) / (1 + spread)
    half = math.sqrt(spread * mean * (1 - mean) + spread * spread / 4) / (1 + spread)
    return Estimate(mean, max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half)))


def over_tasks(values: Sequence[float]) -> Estimate:
    """The mean of per-task values in [0, 1], as Wilson's interval of the effective trials.

    The effective number of trials is mean (1 - mean) over the variance of the mean, which comes
    from the spread between tasks (Korn and Graubard 1998 for clustered samples): that of a binary
    value is the number of tasks less one, that of a rate over k samples lies above it.
    """
    count = len(values)
    if count == 0:
        raise ValueError("no task has a value; give at least one")
    mean = math.fsum(values) / count
    spread = math.fsum((value - mean) ** 2 for value in values)
    if count == 1 or spread == 0.0:
        return wilson(mean, count)
    variance = spread / (count - 1) / count
    return wilson(mean, mean * (1 - mean) / variance)


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Chance that at least one of k of a task's samples is right, without bias.

    1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, section 2.1).
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {right} right among {samples}: k may be 1 to {samples}")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)
