"""Advantages of groups of samples of one prompt.

Invariants: the advantages of a group sum to 0; a group whose rewards are all the same, or with
fewer than two scored samples, has advantages of exactly 0 whatever rounding does; a sample without
a score (None), or that is left out of training, is no part of any statistic and gets no advantage.
All arithmetic is float64, means are exactly rounded sums.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.train.objective.config import Advantage
from tasks.train.objective.errors import BadReward

SAME = 1e-9
"""Rewards this near to each other are the same: far below any reward step, far above rounding."""
INTELLECT2_EPS = 1e-6


def group_advantages(
    groups: Sequence[Sequence[float | None]], form: Advantage, trained: int | None = None
) -> list[list[float | None]]:
    """Advantages in the shape of the rewards, of at most `trained` samples of each group.

    std: (r - mean) / std, std over the group with n - 1 (GRPO, arXiv 2402.03300). batch_std: std
    over all scored rewards given (arXiv 2508.08221). none: r - mean (Dr. GRPO, arXiv 2503.20783).
    intellect2: (r - mean) / (std + 1e-6) (arXiv 2505.07291 and its code).

    Raises BadReward.
    """
    for number, group in enumerate(groups):
        for index, reward in enumerate(group):
            if reward is not None and not math.isfinite(reward):
                raise BadReward(number, index, reward)
    if trained is not None:
        groups = [most_spread(group, trained) for group in groups]
    scored = [[reward for reward in group if reward is not None] for group in groups]
    whole = deviation([reward for group in scored for reward in group])
    return [
        _advantages(group, rewards, form, whole)
        for group, rewards in zip(groups, scored, strict=True)
    ]


def most_spread(rewards: Sequence[float | None], most: int) -> list[float | None]:
    """The rewards with only those `most` left that have the greatest variance, the others None.

    These are some of the highest and some of the lowest (PODS, arXiv 2504.13818, section 3.2); of
    splits with the same variance the most even one is taken, of equal rewards the first and last.
    """
    scored = [(reward, place) for place, reward in enumerate(rewards) if reward is not None]
    if len(scored) <= most:
        return list(rewards)
    scored.sort()
    values = np.array([reward for reward, _ in scored])
    values -= values.mean()
    low = np.arange(most + 1)
    first_highest = len(scored) - most + low

    def sums(of: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.concatenate([[0.0], of.cumsum()])
        taken: NDArray[np.float64] = total[low] + total[-1] - total[first_highest]
        return taken

    variance = sums(values**2) / most - (sums(values) / most) ** 2
    best = np.flatnonzero(variance >= variance.max() - SAME)
    split = int(best[np.abs(2 * best - most).argmin()])
    kept = {place for _, place in scored[:split] + scored[len(scored) - most + split :]}
    return [reward if place in kept else None for place, reward in enumerate(rewards)]


def deviation(rewards: Sequence[float]) -> float:
    """Standard deviation with n - 1, and 0 where the rewards are the same or fewer than two."""
    if len(rewards) < 2 or max(rewards) - min(rewards) <= SAME:
        return 0.0
    mean = math.fsum(rewards) / len(rewards)
    return math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))


def _advantages(
    group: Sequence[float | None], rewards: Sequence[float], form: Advantage, whole: float
) -> list[float | None]:
    own = deviation(rewards)
    if own == 0.0:
        return [None if reward is None else 0.0 for reward in group]
    mean = math.fsum(rewards) / len(rewards)
    divisor = {
        "std": own,
        "batch_std": whole,
        "none": 1.0,
        "intellect2": own + INTELLECT2_EPS,
    }[form]
    return [None if reward is None else (reward - mean) / divisor for reward in group]
