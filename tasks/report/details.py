"""What the page shows beside the funnel: difficulty, proof figures, sample answers, settings.

Invariant: a pure choice from committed tables; the same run gives the same page.
"""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.shards import damaged, read_manifest, read_table
from tasks.report.outcomes import Outcomes, read_outcomes
from tasks.report.plans import Plans, Shard, read_plans
from tasks.report.stages import pass_mark_of

BINS = ("0", "to 25%", "to 50%", "to 75%", "to 99%", "100%")
MAX_SAMPLES = 24
MAX_TEXT = 6_000


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many tasks a model solves how often."""

    model: str
    bins: tuple[tuple[str, int], ...]
    unknown: int
    """Tasks with too few scored samples."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the proofs over the traces of a model."""

    model: str
    name: str
    count: int
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer to look at."""

    task_type: str
    model: str
    outcome: str
    reward: float | None
    status: str
    prompt: tuple[tuple[str, str], ...]
    """(role, text) of each message."""
    completion: str
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Details:
    """Everything on the page that is not in the funnel."""

    settings: str
    histograms: tuple[Histogram, ...]
    figures: tuple[Figure, ...]
    samples: tuple[Sample, ...]


def read_details(store: Store, layout: RunLayout) -> Details:
    """Read the details of a run, finished or not."""
    plans = read_plans(store, layout)
    pass_mark = pass_mark_of(read_manifest(store, layout.difficulty))
    outcomes = read_outcomes(store, layout, plans, pass_mark)
    settings = ""
    if store.exists(layout.run_toml):
        settings = store.read_bytes(layout.run_toml).decode("utf-8", "replace")
    return Details(
        settings=settings,
        histograms=_histograms(store, layout),
        figures=_figures(store, outcomes),
        samples=_samples(store, layout, plans, outcomes),
    )


def bin_of(rate: float) -> int:
    """Bin of a pass rate; never and always have bins of their own."""
    if rate == 0:
        return 0
    return len(BINS) - 1 if rate == 1 else 1 + sum(rate > limit for limit in (0.25, 0.5, 0.75))


def _histograms(store: Store, layout: RunLayout) -> tuple[Histogram, ...]:
    if damaged(store, layout.difficulty):
        # not committed yet, or named in the funnel's problems
        return ()
    counts: dict[str, Counter[int | None]] = defaultdict(Counter)
    table = read_table(store, layout.difficulty, columns=["model", "pass_rate"])
    for row in table.to_pylist():
        rate = row["pass_rate"]
        counts[row["model"]][None if rate is None else bin_of(rate)] += 1
    return tuple(
        Histogram(
            model=model,
            bins=tuple((label, counts[model][number]) for number, label in enumerate(BINS)),
            unknown=counts[model][None],
        )
        for model in sorted(counts)
    )


def _figures(store: Store, outcomes: Outcomes) -> tuple[Figure, ...]:
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for shard, manifest in outcomes.verdicts.items():
        for text in read_table(store, manifest.path, columns=["figures"])["figures"].to_pylist():
            for name, value in _numbers(json.loads(text or "{}")):
                values[shard.model, name].append(value)
    return tuple(
        Figure(model, name, len(found), min(found), statistics.median(found), max(found))
        for (model, name), found in sorted(values.items())
    )


def _numbers(figures: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a JSON object by their dotted names; lists and texts are left out."""
    if isinstance(figures, dict):
        for name, value in figures.items():
            yield from _numbers(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(figures, int | float) and not isinstance(figures, bool):
        yield prefix, float(figures)


def _samples(
    store: Store, layout: RunLayout, plans: Plans, outcomes: Outcomes
) -> tuple[Sample, ...]:
    """A right and a wrong answer of each kind of task, the teacher's where there is one."""
    columns = ["task_id", "task_type", "prompt"]
    tasks = {row["task_id"]: row for row in read_table(store, layout.tasks, columns).to_pylist()}
    teachers = plans.phases.get("teacher", set())
    chosen: dict[tuple[str, str], str] = {}
    for trace_id, outcome in sorted(
        outcomes.scored.items(), key=lambda item: _preference(item[0], plans, teachers)
    ):
        if outcome in ("right", "wrong") and trace_id in plans.traces:
            task_type = tasks[plans.traces[trace_id][0]]["task_type"]
            chosen.setdefault((task_type, outcome), trace_id)
    wanted = dict(sorted(chosen.items())[:MAX_SAMPLES])
    rows = _trace_rows(store, layout, plans, outcomes, set(wanted.values()))
    return tuple(
        _sample(task_type, outcome, rows[trace_id], tasks)
        for (task_type, outcome), trace_id in wanted.items()
        if trace_id in rows
    )


def _preference(trace_id: str, plans: Plans, teachers: set[str]) -> tuple[bool, str]:
    model = plans.traces[trace_id][1] if trace_id in plans.traces else ""
    return model not in teachers, trace_id


def _trace_rows(
    store: Store, layout: RunLayout, plans: Plans, outcomes: Outcomes, wanted: set[str]
) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for shard, trace_ids in sorted(plans.shards.items()):
        # traces that are damaged, or made again after they were scored, have no sample
        if wanted & trace_ids and shard in outcomes.traces and shard in outcomes.rewards:
            rows |= _shard_rows(store, layout, shard, wanted)
    return rows


def _shard_rows(
    store: Store, layout: RunLayout, shard: Shard, wanted: set[str]
) -> dict[str, dict[str, Any]]:
    key = (shard.slug, shard.shard_id)
    columns = ["trace_id", "task_id", "model", "completion", "finish_reason"]
    rows = {
        row["trace_id"]: row
        for row in read_table(store, layout.traces(*key), columns=columns).to_pylist()
        if row["trace_id"] in wanted
    }
    scores = read_table(store, layout.rewards(*key), columns=["trace_id", "score", "status"])
    for row in scores.to_pylist():
        if row["trace_id"] in rows:
            rows[row["trace_id"]] |= {"score": row["score"], "status": row["status"]}
    return rows


def _sample(
    task_type: str, outcome: str, row: dict[str, Any], tasks: dict[str, dict[str, Any]]
) -> Sample:
    return Sample(
        task_type=task_type,
        model=row["model"],
        outcome=outcome,
        reward=row["score"],
        status=row["status"],
        prompt=tuple(
            (message["role"], _shorten(message["content"]))
            for message in tasks[row["task_id"]]["prompt"]
        ),
        completion=_shorten(row["completion"]),
        finish_reason=row["finish_reason"],
    )


def _shorten(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[... {len(text) - MAX_TEXT} more characters]"
