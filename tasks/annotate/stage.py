"""The annotate stage: from the annotators' committed rewards to `difficulty/part-00000`.

Invariants: reads committed shards only; one row for each planned (task, model); committed once, so
the teacher's plan, which follows from it, never shifts. A shard without rewards lowers `n_scored`
and is named in the manifest (`info["missing_shards"]`), it does not stop the stage.
"""

from collections.abc import Iterator

import pyarrow as pa

from data_contracts import annotate as contract
from data_contracts.ids import model_slug
from data_contracts.text import table_from_rows
from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.reconcile import StageCount, check
from infra.storage.shards import Manifest, commit_table, read_manifest, read_table
from tasks.annotate.config import AnnotateConfig
from tasks.annotate.difficulty import Scored, difficulty_rows
from tasks.annotate.errors import InvalidDifficulty, NothingPlanned

PHASE = "annotators"


def annotate(store: Store, layout: RunLayout, config: AnnotateConfig, *, producer: str) -> Manifest:
    """Compute and commit the difficulty of every task for every annotator model."""
    done = read_manifest(store, layout.difficulty)
    if done is not None:
        return done
    planned, shards = _read_plan(store, layout)
    present = [shard for shard in shards if read_manifest(store, layout.rewards(*shard))]
    rows = difficulty_rows(planned, _rewards(store, layout, present), config)
    table = table_from_rows(rows, contract.SCHEMA)
    report = contract.validate(table)
    if not report.ok or report.bad_rows:
        # these rows are made here, so a bad one is our fault and not a row to quarantine
        rules = report.blocking + tuple(sorted(set(report.bad_rows.values())))
        raise InvalidDifficulty(layout.run_id, rules)

    below = sum(row["pass_rate"] is None for row in rows)
    count = StageCount(
        stage="annotate",
        rows_in=len(set(planned.values())),
        rows_out=table.num_rows,
        quarantined=0,
    )
    check(count)
    return commit_table(
        store,
        layout.difficulty,
        table,
        schema=contract.SCHEMA,
        producer=producer,
        info={
            "stage": "annotate",
            "counts": count.info(),
            "status": {"rated": len(rows) - below, "too_few_scored": below},
            "config": config.model_dump(),
            "missing_shards": sorted(shard for _, shard in set(shards) - set(present)),
        },
    )


def _read_plan(
    store: Store, layout: RunLayout
) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """Planned traces, trace id -> (task_id, model), and shards as (model slug, shard id)."""
    path = layout.plan(PHASE)
    if read_manifest(store, path) is None:
        raise NothingPlanned(layout.run_id, path)
    table: pa.Table = read_table(store, path, columns=["trace_id", "task_id", "model", "shard_id"])
    if table.num_rows == 0:
        raise NothingPlanned(layout.run_id, path)
    planned: dict[str, tuple[str, str]] = {}
    shards: set[tuple[str, str]] = set()
    for row in table.to_pylist():
        planned[row["trace_id"]] = (row["task_id"], row["model"])
        shards.add((model_slug(row["model"]), row["shard_id"]))
    return planned, sorted(shards)


def _rewards(
    store: Store, layout: RunLayout, shards: list[tuple[str, str]]
) -> Iterator[tuple[str, Scored]]:
    for shard in shards:
        table = read_table(store, layout.rewards(*shard), columns=["trace_id", "score", "binary"])
        for row in table.to_pylist():
            yield row["trace_id"], Scored(row["score"], row["binary"])
