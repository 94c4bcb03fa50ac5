"""Tasks of a published `rl` split: which are trained on, which are held out.

Invariants: a task is known by its id; the held-out tasks of a kind are those whose hashes come
first, so the choice depends on the dataset alone, is the same for every seed of a run, and no
held-out task (nor prompt) is trained on; the difficulty filter is for training tasks only and
inclusive at both ends (INTELLECT-2).
"""

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from data_contracts.ids import model_slug
from infra.storage import Store
from tasks.train.objective import DifficultyRange
from tasks.train.objective.filters import within_difficulty
from tasks.train.rounds.errors import BadSplit, NoTasks

COLUMNS = ["task_id", "problem_id", "task_type", "prompt", "verification_info"]


class TaskChoice(BaseModel):
    """Which tasks of which dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(
        "",
        description="Directory of one version of a published dataset, or of the dataset, which "
        "then means its current version. Empty: the run publishes one first, by `profile`.",
    )
    profile: str = Field(
        "rl-tasks",
        description="Profile of the run that publishes the tasks where no dataset is named.",
    )
    annotator: str = Field(
        "", description="Whose pass rates filter the tasks; needed where a split has several."
    )
    difficulty: DifficultyRange = Field(
        default=DifficultyRange(), description="Pass rates of the tasks that are trained on."
    )
    held_out: int = Field(
        400, ge=1, description="Tasks of each kind that are kept for evaluation alone."
    )


@dataclass(frozen=True)
class RlTask:
    """One task of the split."""

    task_id: str
    problem_id: str
    task_type: str
    kind: str
    """The generator where there is one (spell_backward), else the task type."""
    prompt: tuple[dict[str, str], ...]
    verification_info: str


@dataclass(frozen=True)
class TaskSplit:
    """Training tasks by task id, held-out tasks by kind and hash."""

    train: tuple[RlTask, ...]
    held_out: tuple[RlTask, ...]

    def all(self) -> tuple[RlTask, ...]:
        """Every task of the split."""
        return (*self.train, *self.held_out)

    def kinds(self) -> list[str]:
        """Kinds of task, by name."""
        return sorted({task.kind for task in self.held_out})


def read_split(choice: TaskChoice) -> TaskSplit:
    """The tasks of a published dataset as a run uses them."""
    rows = _rows(choice)
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        kinds[_kind(row)].append(row)
    train: list[RlTask] = []
    held_out: list[RlTask] = []
    for kind, members in sorted(kinds.items()):
        members.sort(key=lambda row: _place(row["task_id"]))
        kept, rest = members[: choice.held_out], members[choice.held_out :]
        if len(kept) < choice.held_out or not rest:
            raise NoTasks(
                f"{choice.dataset} has {len(members)} tasks of {kind}; held out are "
                f"{choice.held_out} and at least one is needed for training: publish more tasks "
                "of that kind or lower tasks.held_out"
            )
        held_out += [_task(row, kind) for row in kept]
        fit = within_difficulty([row["pass_rate"] for row in rest], choice.difficulty)
        train += [_task(rest[index], kind) for index in fit]
    if not train:
        raise NoTasks(
            f"no task of {choice.dataset} has a pass rate in {choice.difficulty}; widen "
            "tasks.difficulty"
        )
    return TaskSplit(tuple(sorted(train, key=lambda task: task.task_id)), tuple(held_out))


def version_of(dataset: str) -> str:
    """The directory of one version: of a dataset's, the current one."""
    store = Store(dataset)
    if store.exists("_LATEST.json"):
        return store.uri(store.read_json("_LATEST.json")["version"])
    return store.root


def _rows(choice: TaskChoice) -> list[dict[str, Any]]:
    store = Store(version_of(choice.dataset))
    names = [name for name in store.list("rl") if name.endswith(".parquet")]
    if not names:
        raise BadSplit(
            f"{choice.dataset} holds no rl/*.parquet: name the directory of a published dataset, "
            "or leave tasks.dataset empty"
        )
    rows: list[dict[str, Any]] = []
    for name in names:
        table = pq.read_table(pa.BufferReader(store.read_bytes(name)))
        missing = [column for column in COLUMNS if column not in table.column_names]
        if missing:
            raise BadSplit(f"{store.uri(name)} has no columns {missing}; it is no rl split")
        rate = _rate_column(table.column_names, choice)
        for row in table.select([*COLUMNS, rate]).to_pylist():
            row["pass_rate"] = row.pop(rate)
            rows.append(row)
    return rows


def _rate_column(columns: list[str], choice: TaskChoice) -> str:
    found = [name for name in columns if name.startswith("pass_rate_")]
    if choice.annotator:
        found = [name for name in found if name == f"pass_rate_{model_slug(choice.annotator)}"]
    if len(found) != 1:
        rates = [n.removeprefix("pass_rate_") for n in columns if n.startswith("pass_rate_")]
        raise BadSplit(
            f"tasks.annotator is {choice.annotator!r}; {choice.dataset} has the pass rates of "
            f"{rates}: name exactly one of them"
        )
    return found[0]


def _kind(row: dict[str, Any]) -> str:
    info = json.loads(row["verification_info"])
    return str(info.get("reasoning_gym_dataset", row["task_type"]))


def _task(row: dict[str, Any], kind: str) -> RlTask:
    prompt = tuple({"role": m["role"], "content": m["content"]} for m in row["prompt"])
    return RlTask(
        task_id=row["task_id"],
        problem_id=row["problem_id"],
        task_type=row["task_type"],
        kind=kind,
        prompt=prompt,
        verification_info=row["verification_info"],
    )


def _place(task_id: str) -> str:
    return hashlib.sha256(f"tracemill-held-out {task_id}".encode()).hexdigest()
