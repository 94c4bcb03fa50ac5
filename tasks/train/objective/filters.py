"""Which tasks are worth sampling, and which groups are worth training on."""

from collections.abc import Sequence

from tasks.train.objective.config import DifficultyRange


def within_difficulty(rates: Sequence[float | None], allowed: DifficultyRange) -> list[int]:
    """Offline: indices of the tasks whose solve rate lies in the range, both ends included.

    A task of unknown rate (None) is kept only where the range has no bound at all.
    """
    low, high = allowed.minimum, allowed.maximum
    if low is None and high is None:
        return list(range(len(rates)))
    return [
        index
        for index, rate in enumerate(rates)
        if rate is not None and (low is None or rate >= low) and (high is None or rate <= high)
    ]


def has_signal(advantages: Sequence[float | None]) -> bool:
    """Online: whether a group teaches anything; one whose advantages are all 0 is dropped.

    This is DAPO's dynamic sampling (arXiv 2503.14476, section 3.2): the batch is filled up with
    other groups.
    """
    return any(advantages)
