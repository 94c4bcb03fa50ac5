"""The result of the rounds: learning curve, held-out figures, the trainer's metrics; as a page too.

Invariant: read from the files of the run alone, so it can be written at any time, also half way.
"""

import base64
import io
from typing import Any

import pyarrow.parquet as pq

from infra.storage import Store
from tasks.report.html import render_page
from tasks.report.tables import Table
from tasks.train.rounds.curve import learning_curve
from tasks.train.rounds.estimates import Estimate
from tasks.train.rounds.evaluation import Evaluation, KindRates
from tasks.train.rounds.layout import RlLayout

LAST = 3
"""Evaluations at the end whose mean is a run's result."""
METRICS = (
    "loss", "policy/entropy", "policy/clip_fraction", "policy/mismatch_kl", "optim/grad_norm",
    "optim/learning_rate", "data/samples", "time/wait_for_batch", "time/step",
    "perf/tokens_per_second",
)  # fmt: skip
MOST_ROWS = 60


def read_evaluations(store: Store, layout: RlLayout) -> list[Evaluation]:
    """All evaluations of a run, by version."""
    names = store.list(f"{layout.root}/evaluations")
    return [Evaluation.from_json(store.read_json(name)) for name in names]


def read_steps(store: Store, layout: RlLayout) -> list[dict[str, Any]]:
    """What each step was made of, by step."""
    return [store.read_json(name) for name in store.list(f"{layout.root}/steps")]


def final_rates(evaluations: list[Evaluation]) -> dict[str, dict[str, float]]:
    """Kind -> mean of the last evaluations: sampled, greedy, tokens, length error; and the first.

    The evaluation of version 0 never counts among the last.
    """
    last = [found for found in evaluations if found.version > 0][-LAST:] or evaluations[-1:]
    found: dict[str, dict[str, float]] = {}
    for kind, start in evaluations[0].kinds.items():
        rates = [evaluation.kinds[kind] for evaluation in last]
        found[kind] = _figures([start], "start_") | _figures(rates, "")
    return found


def _figures(rates: list[KindRates], prefix: str) -> dict[str, float]:
    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    figures = {
        f"{prefix}sampled": mean([rate.sampled.mean for rate in rates]),
        f"{prefix}greedy": mean([rate.greedy.mean for rate in rates]),
        f"{prefix}tokens": mean([rate.tokens for rate in rates]),
    }
    errors = [rate.length_error for rate in rates if rate.length_error is not None]
    return figures | ({f"{prefix}length_error": mean(errors)} if errors else {})


def curve_data_uri(evaluations: list[Evaluation], title: str) -> str:
    """The learning curve as an image that can be embedded."""
    image = learning_curve(evaluations, title).encode()
    return f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}"


def evaluation_table(store: Store, layout: RlLayout) -> Table:
    """One row per version and kind."""
    head = ("version", "seconds", "kind", "tasks", "avg@k", "greedy", "pass@k", "tokens",
            "length error", "unscored")  # fmt: skip
    rows = tuple(
        (
            str(found.version),
            f"{found.seconds:.0f}",
            kind,
            str(rates.tasks),
            _shown(rates.sampled),
            _shown(rates.greedy),
            ", ".join(f"@{k} {estimate.mean:.3f}" for k, estimate in rates.passed.items()),
            f"{rates.tokens:.1f}",
            "-" if rates.length_error is None else f"{rates.length_error:.2f}",
            str(rates.unscored),
        )
        for found in read_evaluations(store, layout)
        for kind, rates in found.kinds.items()
    )
    return Table("Held-out figures", head, rows, frozenset({0, 1, 3, 7, 8, 9}))


def _shown(estimate: Estimate) -> str:
    return f"{estimate.mean:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def steps_table(store: Store, layout: RlLayout) -> Table:
    """What steps were made of; at most `MOST_ROWS` of them, evenly."""
    head = ("step", "seconds", "samples", "groups", "with spread", "tokens", "staleness",
            "task reward")  # fmt: skip
    rows = tuple(
        (
            str(step["step"]),
            f"{step['seconds']:.0f}",
            str(step["samples"]),
            str(step["groups"]),
            str(step["useful_groups"]),
            str(step["tokens"]),
            ", ".join(f"{lag}: {count}" for lag, count in step["staleness"].items()),
            ", ".join(f"{kind} {mean:.3f}" for kind, mean in step["task_reward"].items()),
        )
        for step in _thinned(read_steps(store, layout))
    )
    return Table("Steps", head, rows, frozenset(range(6)))


def metrics_table(store: Store, layout: RlLayout) -> Table:
    """The trainer's metrics; at most `MOST_ROWS` steps, evenly."""
    path = f"{layout.trainer}/metrics.parquet"
    rows: list[dict[str, Any]] = []
    if store.exists(path):
        rows = pq.read_table(io.BytesIO(store.read_bytes(path))).to_pylist()
    names = [name for name in METRICS if rows and name in rows[-1]]
    shown = tuple(
        (str(row["step"]), *(f"{row[name]:.4g}" for name in names)) for row in _thinned(rows)
    )
    return Table("Trainer", ("step", *names), shown, frozenset(range(len(names) + 1)))


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    stride = -(-len(rows) // MOST_ROWS) or 1
    kept = rows[::stride]
    return kept if not rows or kept[-1] is rows[-1] else [*kept, rows[-1]]


def write_report(store: Store, layout: RlLayout) -> str:
    """Write the page and the image; the path of the page."""
    evaluations = read_evaluations(store, layout)
    title = layout.run.run_id
    page = render_page(
        "rounds.html.j2",
        run_id=title,
        tiles=[
            (f"{figures['start_sampled']:.3f} → {figures['sampled']:.3f}", f"{kind}, sampled")
            for kind, figures in final_rates(evaluations).items()
        ],
        curve=curve_data_uri(evaluations, title),
        tables=[
            evaluation_table(store, layout),
            steps_table(store, layout),
            metrics_table(store, layout),
        ],
    )
    store.write_bytes(layout.curve, learning_curve(evaluations, title).encode(), overwrite=True)
    store.write_bytes(layout.report, page.encode(), overwrite=True)
    return layout.report
