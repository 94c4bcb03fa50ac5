"""Contract of the `plan` table: which traces a shard holds, and in which batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from data_contracts.expectations import check
from data_contracts.fields import required
from data_contracts.flags import seed_recomputes
from data_contracts.ids import ID_PATTERN
from data_contracts.report import Report
from data_contracts.rules import Contract, Rows, at_least, holds, matches, unique

SCHEMA = pa.schema(
    [
        required("trace_id", pa.string()),
        required("task_id", pa.string()),
        required("model", pa.string()),
        required("shard_id", pa.string()),
        required("sample_index", pa.int32()),
        required("batch", pa.int32()),
        required("position", pa.int32()),
        required("seed", pa.int64()),
    ]
)


def _per_shard(rows: Rows, column: str, fine: Callable[[list[Any]], bool]) -> list[bool]:
    """For each row, whether its shard's values, in order of position, are fine."""
    groups: dict[str, list[tuple[int, Any]]] = {}
    columns = (rows["shard_id"], rows["position"], rows[column])
    for shard, position, value in zip(*columns, strict=True):
        groups.setdefault(shard, []).append((position, value))
    verdict = {
        shard: fine([value for _, value in sorted(group, key=lambda item: item[0])])
        for shard, group in groups.items()
    }
    return [verdict[shard] for shard in rows["shard_id"]]


def _dense(positions: list[int]) -> bool:
    return positions == list(range(len(positions)))


def _in_order(batches: list[int]) -> bool:
    return batches == sorted(batches) and sorted(set(batches)) == list(range(len(set(batches))))


CONTRACT = Contract(
    name="plan",
    schema=SCHEMA,
    derived={
        "seed_recomputes": lambda rows: [
            seed_recomputes(*row) for row in zip(rows["trace_id"], rows["seed"], strict=True)
        ],
        "positions_dense": lambda rows: _per_shard(rows, "position", _dense),
        "batches_in_order": lambda rows: _per_shard(rows, "batch", _in_order),
        "shard_one_model": lambda rows: _per_shard(rows, "model", lambda m: len(set(m)) == 1),
    },
    # A plan is made by code from config alone: any finding is a fault of the planner.
    rules=(
        unique("trace_id"),
        unique("task_id", "model", "sample_index"),
        matches("trace_id", ID_PATTERN, "32 lower-case hex characters", "block"),
        matches("task_id", ID_PATTERN, "32 lower-case hex characters", "block"),
        matches("shard_id", ID_PATTERN, "32 lower-case hex characters", "block"),
        matches("model", r"\S", "must not be blank", "block"),
        at_least("sample_index", 0, "block"),
        holds("seed_recomputes", "block", "the seed comes from the trace id"),
        holds("positions_dense", "block", "positions of a shard are 0, 1, 2, ..."),
        holds("batches_in_order", "block", "batches are 0, 1, 2, ... in order of position"),
        holds("shard_one_model", "block", "all traces of a shard are of one model"),
    ),
)


def validate(table: pa.Table) -> Report:
    """What the contract says about a plan table."""
    return check(CONTRACT, table)
