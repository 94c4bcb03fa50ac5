"""What jobs ask for, from the run's seed alone."""

from collections import Counter
from dataclasses import replace

import pytest

from infra.inference.prompts import ChatTokenizer
from infra.models.registry import materialise
from tasks.generate.config import SamplingConfig
from tasks.train.objective import LengthConfig
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.errors import NoRoom
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.plan import Planner
from tasks.train.rounds.tasks import RlTask, TaskSplit

TARGETS = (8, 16, 24, 32)
PROMPT = ({"role": "user", "content": "Hi."},)
TASKS = tuple(
    RlTask(f"{at:032x}", f"p{at}", "reverse_text", "words", PROMPT, "") for at in range(20)
)
PLANNER = Planner(
    run_id="r",
    seed=3,
    model="tracemill/nano-s",
    split=TaskSplit(TASKS, TASKS[:4]),
    tokenizer=ChatTokenizer(materialise("tracemill/nano-s"), "tracemill/nano-s"),
    sampling=SamplingConfig(),
    rounds=RoundsConfig(group_size=2, groups_per_job=10),
    lengths=LengthConfig(reward="exact", targets=TARGETS),
    evaluation=EvaluationConfig(),
)


def test_targets_are_drawn_evenly_for_whole_groups_and_again_the_same():
    jobs = [PLANNER.rollouts(step, 0, 0, 0) for step in range(1, 101)]
    assert jobs == [PLANNER.rollouts(step, 0, 0, 0) for step in range(1, 101)]
    groups = [group for job in jobs for group in job.groups]
    drawn = Counter(group.target_length for group in groups)
    assert set(drawn) == set(TARGETS)
    assert max(drawn.values()) < 1.3 * min(drawn.values())
    for group in groups:
        assert (
            group.prompt == f"Hi. Think for {group.target_length} tokens before giving a response."
        )
        assert (
            group.prompt_ids
            == PLANNER.tokenizer.render([{"role": "user", "content": group.prompt}])[0]
        )
    other = replace(PLANNER, seed=4).rollouts(1, 0, 0, 0)
    assert [g.target_length for g in other.groups] != [g.target_length for g in jobs[0].groups]


def test_held_out_targets_are_those_of_every_version():
    versions = [PLANNER.evaluations(version) for version in (0, 7)]
    targets = [[g.target_length for job in jobs for g in job.groups] for jobs in versions]
    assert targets[0] == targets[1]
    assert set(targets[0]) <= set(TARGETS)


def test_without_targets_the_prompt_is_the_task():
    job = replace(PLANNER, lengths=LengthConfig()).rollouts(1, 0, 0, 0)
    assert {(group.prompt, group.target_length) for group in job.groups} == {("Hi.", -1)}


def test_a_task_that_has_no_room_is_known_before_anything_is_asked_for():
    longest = len(PLANNER.rollouts(1, 0, 0, 0).groups[0].prompt_ids)
    PLANNER.check_room(TASKS, 7, "the limit", longest + 7)
    with pytest.raises(NoRoom, match=f"has {longest} tokens and an answer up to 7; the limit is"):
        PLANNER.check_room(TASKS, 7, "the limit", longest + 6)
