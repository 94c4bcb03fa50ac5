"""The nano curriculum: real prompts, right demonstrations, nothing held out is trained on."""

import pytest

import verifiers
from tasks.train.curriculum import KINDS, TRAIN_SEED, Kind, held_out, training_tasks


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_demonstrations_score_one(kind: Kind) -> None:
    for task in kind.tasks(TRAIN_SEED, 20):
        score = verifiers.score(task.task_type, task.completion, task.verification_info)
        assert score.score == 1.0, (task, score)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_prompts_say_where_the_answer_goes(kind: Kind) -> None:
    for task in kind.tasks(TRAIN_SEED, 5):
        assert task.prompt.endswith(" between <answer> and </answer>.")


def test_held_out_prompts_are_distinct_and_not_trained_on() -> None:
    reserved = {task.prompt for kind in KINDS for task in held_out(kind, 64)}
    assert len(reserved) == 64 * len(KINDS)
    assert not reserved & {task.prompt for task in training_tasks(2000, 64, seed=0)}


def test_training_tasks_follow_the_seed() -> None:
    first = training_tasks(200, 8, seed=1)
    assert first == training_tasks(200, 8, seed=1)
    assert first != training_tasks(200, 8, seed=2)


def test_a_smaller_held_out_set_is_part_of_the_larger() -> None:
    for kind in KINDS:
        assert held_out(kind, 12) == held_out(kind, 64)[:12]
