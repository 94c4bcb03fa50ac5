"""The plan: which traces each shard holds, in which decode batches.

Invariants: a pure function of tasks, config, model revisions and run seed; fixed and committed
before the first token, so that a shard that is run again, anywhere, holds the same batches. Traces
of like prompt length share a batch (less padding), and the longest batches come first (a long one
at the end would leave the other nodes idle).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from data_contracts.ids import shard_id, trace_id, trace_seed
from data_contracts.plan import SCHEMA
from data_contracts.text import table_from_rows
from tasks.generate.config import ModelUse


@dataclass(frozen=True)
class PlanTask:
    """What the plan needs to know of a task."""

    task_id: str
    task_type: str
    prompt_chars: int


def plan_tasks(tasks: pa.Table) -> list[PlanTask]:
    """The tasks of a tasks table, in its order."""
    columns = (tasks.column(name).to_pylist() for name in ("task_id", "task_type", "prompt"))
    return [
        PlanTask(task_id, task_type, sum(len(message["content"]) for message in prompt))
        for task_id, task_type, prompt in zip(*columns, strict=True)
    ]


def plan_phase(
    tasks: Sequence[PlanTask],
    uses: Sequence[ModelUse],
    revisions: Mapping[str, str],
    run_seed: int,
    first_index: Mapping[str, int],
) -> pa.Table:
    """The plan table of all models of one phase.

    `first_index` gives, for a model that an earlier phase used already, the index of its first
    sample here: samples of one model for one task are counted through the whole run.
    """
    rows: list[dict[str, Any]] = []
    for use in uses:
        chosen = spread(tasks, use.max_tasks)
        first = first_index.get(use.model, 0)
        rows += _plan_model(chosen, use, revisions[use.model], run_seed, first)
    return table_from_rows(rows, SCHEMA)


def spread(tasks: Sequence[PlanTask], limit: int) -> list[PlanTask]:
    """At most `limit` tasks (0: all), taken in turn from each task type."""
    if not limit or limit >= len(tasks):
        return list(tasks)
    by_type: dict[str, list[PlanTask]] = {}
    for task in tasks:
        by_type.setdefault(task.task_type, []).append(task)
    in_turn = (task for turn in zip_longest(*by_type.values()) for task in turn if task)
    return [task for task, _ in zip(in_turn, range(limit), strict=False)]


def _plan_model(
    tasks: Sequence[PlanTask], use: ModelUse, revision: str, run_seed: int, first: int
) -> list[dict[str, Any]]:
    sampling = use.sampling.as_dict()
    by_length = sorted(tasks, key=lambda task: (-task.prompt_chars, task.task_id))
    traces: list[dict[str, Any]] = [
        {
            "trace_id": trace_id(
                task_id=task.task_id,
                model=use.model,
                model_revision=revision,
                sampling=sampling,
                run_seed=run_seed,
                sample_index=index,
            ),
            "task_id": task.task_id,
            "model": use.model,
            "sample_index": index,
        }
        for task in by_length
        for index in range(first, first + use.samples)
    ]
    rows: list[dict[str, Any]] = []
    shard_size = use.batch_size * use.batches_per_shard
    for first in range(0, len(traces), shard_size):
        shard = traces[first : first + shard_size]
        batches = [position // use.batch_size for position in range(len(shard))]
        shard_name = shard_id(
            model=use.model, trace_ids=[row["trace_id"] for row in shard], batch_plan=batches
        )
        rows += [
            row
            | {
                "shard_id": shard_name,
                "batch": batch,
                "position": position,
                "seed": trace_seed(row["trace_id"]),
            }
            for position, (row, batch) in enumerate(zip(shard, batches, strict=True))
        ]
    return rows


@dataclass(frozen=True)
class Shard:
    """One shard of the plan: its rows by position."""

    model: str
    shard_id: str
    rows: tuple[dict[str, Any], ...]

    def batches(self) -> list[list[dict[str, Any]]]:
        """The rows of each decode batch, in order."""
        grouped: dict[int, list[dict[str, Any]]] = {}
        for row in self.rows:
            grouped.setdefault(row["batch"], []).append(row)
        return [grouped[batch] for batch in sorted(grouped)]


def shards(plan: pa.Table) -> list[Shard]:
    """The shards of a plan table, in plan order."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in plan.to_pylist():
        grouped.setdefault((row["model"], row["shard_id"]), []).append(row)
    return [
        Shard(model, name, tuple(sorted(rows, key=lambda row: row["position"])))
        for (model, name), rows in grouped.items()
    ]
