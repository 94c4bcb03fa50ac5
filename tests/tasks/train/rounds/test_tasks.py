import json

import pytest

from data_contracts import publish as contract
from data_contracts.ids import canonical_json, task_id
from data_contracts.text import table_from_rows
from infra.storage import Store, parquet_bytes
from tasks.train.objective import DifficultyRange
from tasks.train.rounds.errors import BadSplit, NoTasks
from tasks.train.rounds.tasks import TaskChoice, read_split


def rl_row(kind: str, number: int, rate: float | None) -> dict:
    prompt = [{"role": "user", "content": f"{kind} {number}"}]
    info = {"reasoning_gym_dataset": kind, "reasoning_gym_entry": json.dumps({"n": number})}
    return {
        "problem_id": f"{kind}-{number}",
        "task_id": task_id("reasoning_gym", prompt, info),
        "task_type": "reasoning_gym",
        "prompt": prompt,
        "verification_info": canonical_json(info),
        "avg_reward_tiny": rate,
        "pass_rate_tiny": rate,
        "n_tiny": 0 if rate is None else 4,
    }


@pytest.fixture
def published(tmp_path):
    """A dataset directory as `publish` leaves it, with 12 tasks of each of two kinds."""
    rates = [None, 0.0, 0.25, 0.5, 0.75, 1.0] * 2
    rows = [rl_row(kind, n, rate) for kind in ("spell", "sort") for n, rate in enumerate(rates)]
    store = Store(str(tmp_path / "set"))
    table = table_from_rows(rows, contract.rl(["tiny"]))
    store.write_bytes("v1/rl/train-00000-of-00001.parquet", parquet_bytes(table))
    store.write_json("_LATEST.json", {"version": "v1"})
    return tmp_path / "set"


def test_held_out_tasks_are_never_trained_on(published):
    anything = DifficultyRange(minimum=None, maximum=None)
    split = read_split(TaskChoice(dataset=str(published), held_out=5, difficulty=anything))
    held_out, train = ({task.task_id for task in part} for part in (split.held_out, split.train))
    assert (len(held_out), len(train)) == (10, 14)
    assert not held_out & train
    assert split.kinds() == ["sort", "spell"]
    assert read_split(TaskChoice(dataset=str(published / "v1"), held_out=5)).held_out == (
        split.held_out
    )


def test_the_difficulty_filter_is_inclusive_and_spares_the_held_out_tasks(published):
    narrow = DifficultyRange(minimum=0.25, maximum=0.5)
    choice = TaskChoice(dataset=str(published), held_out=1, difficulty=narrow)
    split = read_split(choice)
    wide = read_split(choice.model_copy(update={"difficulty": DifficultyRange(maximum=1.0)}))
    assert split.held_out == wide.held_out
    numbers = {int(task.problem_id.split("-")[1]) % 6 for task in split.train}
    assert numbers == {2, 3}
    assert len(split.train) < len(wide.train)


def test_a_split_that_does_not_fit_is_refused_with_the_next_step(published, tmp_path):
    with pytest.raises(NoTasks, match="lower tasks"):
        read_split(TaskChoice(dataset=str(published), held_out=12))
    with pytest.raises(NoTasks, match="widen"):
        never = DifficultyRange(minimum=0.3, maximum=0.4)
        read_split(TaskChoice(dataset=str(published), held_out=1, difficulty=never))
    with pytest.raises(BadSplit, match="'tiny'"):
        read_split(TaskChoice(dataset=str(published), annotator="other", held_out=1))
    with pytest.raises(BadSplit, match="no rl"):
        read_split(TaskChoice(dataset=str(tmp_path), held_out=1))
