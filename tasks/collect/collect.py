"""The collect stage: all sources in, one committed table of distinct, tested tasks out.

Invariants: rows in = rows out + quarantined; the order is that of the sources; a run that has its
tasks keeps them, whatever the sources would give today.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from data_contracts import collect as contract
from data_contracts.report import split
from data_contracts.text import table_from_rows
from infra.storage import (
    Manifest,
    RunLayout,
    StageCount,
    Store,
    commit_table,
    quarantine_rows,
    read_manifest,
)
from infra.storage.reconcile import check
from tasks.collect import goldtest
from tasks.collect.config import CollectConfig
from tasks.collect.dedupe import prompt_key
from tasks.collect.errors import NothingCollected
from tasks.collect.rows import Bad, Raw, to_task, with_metadata
from tasks.collect.sources import read

STAGE = "collect"
SHARD = "part-00000"

Task = dict[str, Any]


@dataclass
class Collected:
    """Task rows that go on and rows that do not, each in order of arrival."""

    tasks: list[Task] = field(default_factory=list)
    came: list[Raw] = field(default_factory=list)
    """The row that each task was made of."""
    bad: list[Bad] = field(default_factory=list)


def collect_tasks(config: CollectConfig, store: Store, layout: RunLayout) -> Manifest:
    """Commit the tasks of a run; once committed they are returned unchanged."""
    present = read_manifest(store, layout.tasks)
    if present is not None:
        return present
    found = collect_rows(config)
    if not found.tasks:
        raise _nothing(config, found.bad)
    table = table_from_rows(found.tasks, contract.SCHEMA)
    table, refused = split(table, contract.validate(table))
    bad = found.bad + [_refuse(found.came[row], f"contract: {why}") for row, why in refused]
    count = StageCount(
        STAGE,
        rows_in=len(found.tasks) + len(found.bad),
        rows_out=table.num_rows,
        quarantined=len(bad),
        reasons=_reasons(bad),
    )
    check(count)
    if not table.num_rows:
        raise _nothing(config, bad)
    quarantine_rows(
        store, layout, STAGE, SHARD, [(item.row, item.reason, item.origin) for item in bad]
    )
    info = {
        "counts": count.info(),
        "by_task_type": _tally(table["task_type"].to_pylist()),
        "by_source": _tally(table["source"].to_pylist()),
    }
    return commit_table(
        store, layout.tasks, table, schema=contract.SCHEMA, producer=STAGE, info=info
    )


def collect_rows(config: CollectConfig) -> Collected:
    """Run all sources: rows to tasks, duplicates out, gold self-test."""
    found = Collected()
    distinct: list[Task] = []
    came: list[Raw] = []
    seen: set[bytes] = set()
    for raw in chain.from_iterable(map(read, config.sources)):
        if isinstance(raw, Bad):
            found.bad.append(raw)
            continue
        task = to_task(raw)
        if isinstance(task, Bad):
            found.bad.append(task)
            continue
        key = prompt_key(task["prompt"])
        if key in seen:
            found.bad.append(_refuse(raw, "duplicate_prompt"))
            continue
        seen.add(key)
        distinct.append(task)
        came.append(raw.slim())
    for raw, task, verdict in zip(came, distinct, goldtest.check(distinct), strict=True):
        if verdict.keep:
            found.tasks.append(with_metadata(task, gold_test=verdict.outcome))
            found.came.append(raw)
        else:
            found.bad.append(_refuse(raw, verdict.outcome))
    return found


def _refuse(raw: Raw, reason: str) -> Bad:
    return Bad(raw.row, reason, raw.origin)


def _reasons(bad: Iterable[Bad]) -> dict[str, int]:
    return _tally(item.reason.partition(":")[0] for item in bad)


def _nothing(config: CollectConfig, bad: list[Bad]) -> NothingCollected:
    return NothingCollected(
        f"the {len(config.sources)} sources gave {len(bad)} rows and no task: "
        f"{_reasons(bad) or 'they are empty'}. Correct the sources in the config."
    )


def _tally(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
