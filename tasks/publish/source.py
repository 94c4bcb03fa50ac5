"""Read what a run has to publish: tasks, accepted traces with their rewards, difficulty.

Invariants: committed shards only; a trace counts once, also where two phases share it; a trace
whose verdict does not allow publication never leaves this module; an accepted trace is either
returned or counted in `held_back` with its reason.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from data_contracts.ids import model_slug
from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.shards import read_manifest, read_table
from tasks.publish.errors import RowsDoNotAddUp

PHASES = ("annotators", "teacher")
TASK_COLUMNS = [
    "task_id", "problem_id", "source", "task_type", "prompt", "verification_info", "binary",
]  # fmt: skip
TRACE_COLUMNS = [
    "trace_id", "task_id", "model", "model_revision", "sample_index", "sampling", "completion",
    "finish_reason",
]  # fmt: skip
REWARD_COLUMNS = ["trace_id", "status", "score", "verifier"]


@dataclass(frozen=True, slots=True)
class AcceptedTrace:
    """One accepted trace with its reward."""

    trace_id: str
    task_id: str
    model: str
    model_revision: str
    sampling: str
    sample_index: int
    teacher: bool
    completion: str
    finish_reason: str
    reward: float | None
    reward_status: str
    verifier: str


@dataclass(slots=True)
class RunSource:
    """Everything that the published tables are made of."""

    tasks: dict[str, dict[str, Any]]
    traces: list[AcceptedTrace] = field(default_factory=list)
    difficulty: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    accepted: int = 0
    planned: int = 0
    held_back: Counter[str] = field(default_factory=Counter)
    validators: set[str] = field(default_factory=set)


def read_source(store: Store, layout: RunLayout, *, allow_unaudited: bool) -> RunSource:
    """Join the run's committed tables by trace id."""
    tasks = read_table(store, layout.tasks, columns=TASK_COLUMNS).to_pylist()
    source = RunSource(tasks={row["task_id"]: row for row in tasks})
    allowed = {"accepted", "accepted_unaudited"} if allow_unaudited else {"accepted"}
    shards, teacher = _read_plans(store, layout)
    seen: set[str] = set()
    for (slug, shard_id), trace_ids in sorted(shards.items()):
        fresh = trace_ids - seen
        source.planned += len(fresh)
        source.traces += [
            _accepted(row, row["trace_id"] in teacher)
            for row in _join_shard(store, layout, (slug, shard_id), fresh, allowed, source)
        ]
        seen |= fresh
    if read_manifest(store, layout.difficulty) is not None:
        by_task: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for row in read_table(store, layout.difficulty).to_pylist():
            by_task[row["task_id"]][row["model"]] = row
        source.difficulty = dict(by_task)
    _check_tasks(source)
    return source


def _read_plans(
    store: Store, layout: RunLayout
) -> tuple[dict[tuple[str, str], set[str]], set[str]]:
    """The planned shards, (model slug, shard id) -> trace ids, and the teacher's trace ids."""
    shards: dict[tuple[str, str], set[str]] = defaultdict(set)
    teacher: set[str] = set()
    for phase in PHASES:
        if read_manifest(store, layout.plan(phase)) is None:
            continue
        plan = read_table(store, layout.plan(phase), columns=["trace_id", "model", "shard_id"])
        for row in plan.to_pylist():
            shards[(model_slug(row["model"]), row["shard_id"])].add(row["trace_id"])
            if phase == "teacher":
                teacher.add(row["trace_id"])
    return shards, teacher


def _join_shard(
    store: Store,
    layout: RunLayout,
    shard: tuple[str, str],
    fresh: set[str],
    allowed: set[str],
    source: RunSource,
) -> Iterator[dict[str, Any]]:
    """Trace rows with their reward, for the fresh traces of a shard whose verdict is allowed."""
    if read_manifest(store, layout.verdicts(*shard)) is None:
        return
    verdicts = read_table(
        store, layout.verdicts(*shard), columns=["trace_id", "verdict", "validator"]
    ).to_pylist()
    published = [row for row in verdicts if row["verdict"] in allowed and row["trace_id"] in fresh]
    accepted = {row["trace_id"] for row in published}
    source.validators |= {row["validator"] for row in published}
    source.accepted += len(accepted)
    if not accepted:
        return
    if read_manifest(store, layout.rewards(*shard)) is None:
        source.held_back["rewards_missing"] += len(accepted)
        return
    rewards = {
        row["trace_id"]: row
        for row in read_table(store, layout.rewards(*shard), columns=REWARD_COLUMNS).to_pylist()
    }
    found = 0
    for row in read_table(store, layout.traces(*shard), columns=TRACE_COLUMNS).to_pylist():
        if row["trace_id"] in accepted and row["trace_id"] in rewards:
            found += 1
            yield row | {"reward": rewards[row["trace_id"]]}
    if found != len(accepted):
        where = f"accepted in {layout.verdicts(*shard)}"
        raise RowsDoNotAddUp(f"traces and rewards of shard {shard[1]}", found, len(accepted), where)


def _accepted(row: dict[str, Any], teacher: bool) -> AcceptedTrace:
    reward = row["reward"]
    return AcceptedTrace(
        trace_id=row["trace_id"],
        task_id=row["task_id"],
        model=row["model"],
        model_revision=row["model_revision"],
        sampling=row["sampling"],
        sample_index=row["sample_index"],
        teacher=teacher,
        completion=row["completion"],
        finish_reason=row["finish_reason"],
        reward=reward["score"],
        reward_status=reward["status"],
        verifier=reward["verifier"],
    )


def _check_tasks(source: RunSource) -> None:
    known = sum(trace.task_id in source.tasks for trace in source.traces)
    if known != len(source.traces):
        raise RowsDoNotAddUp(
            "traces of known tasks", known, len(source.traces), "accepted traces of the run"
        )
