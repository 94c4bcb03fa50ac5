"""How far rollouts may lag behind, and what fits."""

import pytest

from tasks.generate.config import SamplingConfig
from tasks.train.rollouts.job import Group, RolloutJob
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.errors import NoRoom
from tasks.train.rounds.plan import check_room


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


def test_what_could_not_be_trained_on_is_not_asked_for() -> None:
    """The trainer reads a prompt and an answer but for its last token."""
    group = Group(
        group=0, task_id="t", problem_id="p", task_type="k", prompt="x",
        prompt_ids=[1] * 10, seeds=[1],
    )  # fmt: skip
    job = RolloutJob(
        run_id="r", step=1, number=0, model="m", least_version=0, most_version=0,
        sampling=SamplingConfig(max_tokens=7), batch_groups=1, groups=[group],
    )  # fmt: skip
    check_room(job, 16)
    with pytest.raises(NoRoom, match="task t: its prompt has 10 tokens and an answer up to 7"):
        check_room(job, 15)
