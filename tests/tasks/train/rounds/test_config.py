"""How far rollouts may lag behind, and what fits."""

from tasks.train.rounds.config import RoundsConfig


def test_the_lag_counts_each_version_once() -> None:
    """From version 3, with a bound of 2: trainable while version 5 is trained, not version 6."""
    rounds = RoundsConfig(staleness=2)
    steps = [
        step for step in range(1, 12) if rounds.versions(step)[0] <= 3 <= rounds.versions(step)[1]
    ]
    assert [step - 1 for step in steps] == [3, 4, 5]


def test_synchronous_rounds_train_on_the_newest_version_alone() -> None:
    assert [RoundsConfig(staleness=0).versions(step) for step in (1, 2, 9)] == [
        (0, 0),
        (1, 1),
        (8, 8),
    ]


def test_the_first_steps_train_on_the_start_policy() -> None:
    assert [RoundsConfig(staleness=2).versions(step) for step in (1, 2, 3, 4)] == [
        (0, 0), (0, 1), (0, 2), (1, 3)
    ]  # fmt: skip
