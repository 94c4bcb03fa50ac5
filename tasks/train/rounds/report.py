"""The result of the rounds: learning curve, held-out figures, metrics; as a page too.

Invariant: read from the files of the run alone, so it can be written at any time, also half way.
"""

import base64
import io
from collections import defaultdict
from typing import Any, TypeVar

import pyarrow.parquet as pq

from infra.storage import Store
from tasks.report.html import render_page
from tasks.report.tables import Table
from tasks.train.rounds.curve import learning_curve
from tasks.train.rounds.estimates import Estimate
from tasks.train.rounds.evaluation import Evaluation, KindRates
from tasks.train.rounds.layout import RlLayout
from tasks.train.trainer.metrics import FILE

LAST = 3
"""Evaluations at the end whose mean is a run's result."""
METRICS = (
    "reward/all/mean", "is_truncated/all/mean", "off_policy/mean", "off_policy/max",
    "errored_rollouts", "empty_rollouts", "loss", "entropy/all/mean", "policy/clip_fraction",
    "mismatch_kl/all/mean", "mismatch_kl/all/max", "optim/grad_norm", "optim/learning_rate",
    "data/samples", "time/wait_for_batch", "time/wait_for_ckpt", "time/step",
    "perf/tokens_per_second",
)  # fmt: skip
MOST_ROWS = 60

Row = TypeVar("Row")


def read_evaluations(store: Store, layout: RlLayout) -> list[Evaluation]:
    """All evaluations of a run, by version."""
    names = store.list(f"{layout.root}/evaluations")
    return [Evaluation.from_json(store.read_json(name)) for name in names]


def read_steps(store: Store, layout: RlLayout) -> list[dict[str, Any]]:
    """What each step was made of, by step."""
    return [store.read_json(name) for name in store.list(f"{layout.root}/steps")]


def final_rates(evaluations: list[Evaluation]) -> dict[str, dict[str, float]]:
    """Kind -> mean of the last evaluations: sampled, greedy, tokens, length error; and the first.

    The evaluation of version 0 never counts among the last. A kind needs a figure in the first and
    in one of the last.
    """
    last = [found for found in evaluations if found.version > 0][-LAST:] or evaluations[-1:]
    found: dict[str, dict[str, float]] = {}
    for kind, start in evaluations[0].kinds.items():
        rates = [evaluation.kinds[kind] for evaluation in last if kind in evaluation.kinds]
        if rates:
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
    """One row per kind and version; at most `MOST_ROWS` versions, evenly."""
    head = ("version", "seconds", "kind", "tasks", "avg@k", "greedy", "pass@k", "tokens",
            "length error", "unscored")  # fmt: skip
    measured = _thinned(read_evaluations(store, layout))
    rows: list[tuple[str, ...]] = [
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
        for found in measured
        for kind, rates in found.kinds.items()
    ]
    rows += [
        (str(found.version), f"{found.seconds:.0f}", kind, "0", *["-"] * 5, str(unscored))
        for found in measured
        for kind, unscored in found.left_out.items()
    ]
    rows.sort(key=lambda row: int(row[0]))
    return Table("Held-out figures", head, tuple(rows), frozenset({0, 1, 3, 7, 8, 9}))


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
    """Metrics of trainer and rounds by version; at most `MOST_ROWS` of them, evenly."""
    steps: dict[int, dict[str, Any]] = defaultdict(dict)
    for path in (f"{layout.trainer}/{FILE}", f"{layout.root}/{FILE}"):
        if store.exists(path):
            for row in pq.read_table(io.BytesIO(store.read_bytes(path))).to_pylist():
                steps[row["step"]] |= row
    rows = [steps[step] for step in sorted(steps)]
    known = {name for row in rows for name in row}
    names = [name for name in METRICS if name in known]
    names += sorted(name for name in known if name.startswith("eval/"))
    shown = tuple(
        (str(row["step"]), *(_number(row.get(name)) for name in names)) for row in _thinned(rows)
    )
    return Table("Metrics", ("step", *names), shown, frozenset(range(len(names) + 1)))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _thinned(rows: list[Row]) -> list[Row]:
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
