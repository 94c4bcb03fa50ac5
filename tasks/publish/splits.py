"""The four published tables.

Invariants: the columns are those of the contract; rows are sorted by task type, task, model and
sample, so that equal content gives equal bytes; `sft_verified` is a part of `sft_unverified`;
nothing about proofs, times, nodes or runs gets in.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from data_contracts import publish as contract
from data_contracts.ids import model_slug
from data_contracts.text import table_from_rows
from tasks.annotate.config import PASS_MARK
from tasks.annotate.difficulty import passed
from tasks.publish.errors import ContractBroken, RowsDoNotAddUp
from tasks.publish.source import AcceptedTrace, RunSource

CONFIGS = ("full", "sft_verified", "sft_unverified", "rl")


@dataclass(frozen=True, slots=True)
class Splits:
    """The tables by config, and where the rows went that a table leaves out."""

    tables: dict[str, pa.Table]
    left_out: dict[str, dict[str, int]]
    """Config -> reason -> rows."""


def build_splits(source: RunSource, annotators: Sequence[str]) -> Splits:
    """Make the tables, check their contracts, and check that no row is lost on the way."""
    traces = sorted(source.traces, key=lambda trace: _order(trace, source))
    teacher = [trace for trace in traces if trace.teacher]
    right = [trace for trace in teacher if _passed(trace, source)]
    unscored = sum(trace.reward is None for trace in teacher)
    scored_tasks = {trace.task_id for trace in traces if trace.reward is not None}
    verifiable = {
        task_id for task_id, task in source.tasks.items() if json.loads(task["verification_info"])
    }
    rl_tasks = sorted(
        scored_tasks & verifiable, key=lambda task_id: (_task_type(task_id, source), task_id)
    )
    rows: dict[str, list[dict[str, Any]]] = {
        "full": [_full(trace, source) for trace in traces],
        "sft_verified": [_sft(trace, source) for trace in right],
        "sft_unverified": [_sft(trace, source) for trace in teacher],
        "rl": [_rl(task_id, source, annotators) for task_id in rl_tasks],
    }
    left_out = {
        "full": dict(source.held_back),
        "sft_verified": {
            "not_passed": len(teacher) - len(right) - unscored,
            "unscored": unscored,
        },
        "sft_unverified": {"not_of_the_teacher": len(traces) - len(teacher)},
        "rl": {
            "nothing_to_verify": len(source.tasks) - len(verifiable),
            "verifier_never_scored": len(verifiable - scored_tasks),
        },
    }
    tables = {config: _table(config, rows[config], annotators) for config in CONFIGS}
    _reconcile(tables, left_out, source)
    return Splits(tables, {config: _positive(reasons) for config, reasons in left_out.items()})


def _task_type(task_id: str, source: RunSource) -> str:
    return str(source.tasks[task_id]["task_type"])


def _order(trace: AcceptedTrace, source: RunSource) -> tuple[str, str, str, int, str]:
    # the trace id settles the order where a model samples the same task under two settings
    task_type = _task_type(trace.task_id, source)
    return (task_type, trace.task_id, trace.model, trace.sample_index, trace.trace_id)


def _passed(trace: AcceptedTrace, source: RunSource) -> bool:
    return passed(trace.reward, bool(source.tasks[trace.task_id]["binary"]), PASS_MARK)


def _full(trace: AcceptedTrace, source: RunSource) -> dict[str, Any]:
    task = source.tasks[trace.task_id]
    return {
        "problem_id": task["problem_id"],
        "task_id": trace.task_id,
        "task_type": task["task_type"],
        "prompt": task["prompt"],
        "verification_info": task["verification_info"],
        "model": trace.model,
        "sample_index": trace.sample_index,
        "completion": trace.completion,
        "finish_reason": trace.finish_reason,
        "reward": trace.reward,
        "reward_status": trace.reward_status,
        "binary": task["binary"],
    }


def _sft(trace: AcceptedTrace, source: RunSource) -> dict[str, Any]:
    task = source.tasks[trace.task_id]
    return {
        "problem_id": task["problem_id"],
        "task_id": trace.task_id,
        "task_type": task["task_type"],
        "messages": [*task["prompt"], {"role": "assistant", "content": trace.completion}],
        "completion": trace.completion,
        "reward": trace.reward,
        "reward_status": trace.reward_status,
    }


def _rl(task_id: str, source: RunSource, annotators: Sequence[str]) -> dict[str, Any]:
    task = source.tasks[task_id]
    row = {
        "problem_id": task["problem_id"],
        "task_id": task_id,
        "task_type": task["task_type"],
        "prompt": task["prompt"],
        "verification_info": task["verification_info"],
    }
    for model in annotators:
        rated = source.difficulty.get(task_id, {}).get(model)
        slug = model_slug(model)
        row[f"avg_reward_{slug}"] = rated["avg_reward"] if rated else None
        row[f"pass_rate_{slug}"] = rated["pass_rate"] if rated else None
        row[f"n_{slug}"] = rated["n_scored"] if rated else 0
    return row


def _table(config: str, rows: list[dict[str, Any]], annotators: Sequence[str]) -> pa.Table:
    slugs = [model_slug(model) for model in annotators]
    table = table_from_rows(rows, contract.schema(config, slugs))
    report = contract.validate(table, config, slugs)
    if not report.ok or report.bad_rows:
        raise ContractBroken(config, report.blocking + tuple(sorted(set(report.bad_rows.values()))))
    return table


def _reconcile(
    tables: dict[str, pa.Table], left_out: dict[str, dict[str, int]], source: RunSource
) -> None:
    whole = {
        "full": (source.accepted, "accepted traces"),
        "sft_verified": (tables["sft_unverified"].num_rows, "rows of sft_unverified"),
        "sft_unverified": (tables["full"].num_rows, "rows of full"),
        "rl": (len(source.tasks), "tasks"),
    }
    for config, (expected, where) in whole.items():
        counted = tables[config].num_rows + sum(left_out[config].values())
        if counted != expected or min(left_out[config].values(), default=0) < 0:
            raise RowsDoNotAddUp(
                f"config {config}, with what it leaves out", counted, expected, where
            )


def _positive(reasons: dict[str, int]) -> dict[str, int]:
    return {reason: rows for reason, rows in reasons.items() if rows}
