"""Contract of the `difficulty` table: how often one model solves one task."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.expectations import check
from data_contracts.fields import optional, required
from data_contracts.flags import close, unit
from data_contracts.ids import ID_PATTERN
from data_contracts.report import Report
from data_contracts.rules import Contract, Rows, at_least, holds, matches, unique

FIGURES = ("avg_reward", "pass_rate", "ci_low", "ci_high")

SCHEMA = pa.schema(
    [
        required("task_id", pa.string()),
        required("model", pa.string()),
        required("n_requested", pa.int32()),
        required("n_scored", pa.int32()),
        required("k_passed", pa.int32()),
        optional("avg_reward", pa.float64()),
        optional("pass_rate", pa.float64()),
        optional("ci_low", pa.float64()),
        optional("ci_high", pa.float64()),
    ]
)


def _figures(rows: Rows) -> list[tuple[float | None, ...]]:
    return list(zip(*(rows[name] for name in FIGURES), strict=True))


def _counts_ordered(rows: Rows) -> list[bool]:
    columns = (rows["k_passed"], rows["n_scored"], rows["n_requested"])
    return [0 <= k <= scored <= asked for k, scored, asked in zip(*columns, strict=True)]


def _pass_rate_is(k: int, scored: int, rate: float | None) -> bool:
    # Bad counts and rates out of range are found by the rules about them.
    if rate is None or not unit(rate) or not 0 <= k <= scored:
        return True
    return scored > 0 and close(rate, k / scored)


def _interval_ok(rate: float | None, low: float | None, high: float | None) -> bool:
    if rate is None or low is None or high is None or not (unit(low) and unit(high) and unit(rate)):
        return True
    return low <= rate + 1e-9 and rate <= high + 1e-9


CONTRACT = Contract(
    name="difficulty",
    schema=SCHEMA,
    derived={
        "counts_ordered": _counts_ordered,
        "figures_together": lambda rows: [
            len({value is None for value in row}) == 1 for row in _figures(rows)
        ],
        "figures_in_unit": lambda rows: [
            all(unit(value) for value in row) for row in _figures(rows)
        ],
        "pass_rate_is_share": lambda rows: [
            _pass_rate_is(*row)
            for row in zip(rows["k_passed"], rows["n_scored"], rows["pass_rate"], strict=True)
        ],
        "interval_holds_rate": lambda rows: [
            _interval_ok(*row)
            for row in zip(rows["pass_rate"], rows["ci_low"], rows["ci_high"], strict=True)
        ],
    },
    empty="warn",
    rules=(
        unique("task_id", "model"),
        matches("task_id", ID_PATTERN, "32 lower-case hex characters"),
        matches("model", r"\S", "must not be blank"),
        at_least("n_requested", 1),
        holds("counts_ordered", "quarantine", "0 <= k_passed <= n_scored <= n_requested"),
        holds("figures_together", "quarantine", f"{', '.join(FIGURES)} are null together"),
        holds("figures_in_unit", "quarantine", f"{', '.join(FIGURES)} are in [0, 1]"),
        holds("pass_rate_is_share", "quarantine", "pass_rate is k_passed / n_scored"),
        holds("interval_holds_rate", "quarantine", "ci_low <= pass_rate <= ci_high"),
    ),
)


def validate(table: pa.Table) -> Report:
    """What the contract says about a difficulty table."""
    return check(CONTRACT, table)
