"""Contract of the `rewards` table: the score of each accepted trace, or why there is none."""

from __future__ import annotations

import math

import pyarrow as pa

from data_contracts.expectations import check
from data_contracts.fields import optional, required
from data_contracts.flags import unit
from data_contracts.ids import ID_PATTERN
from data_contracts.report import Report
from data_contracts.rules import Contract, Rule, holds, in_set, matches, single, unique

SCORED = ("ok", "no_answer", "timeout", "crash")
UNSCORED = ("unverifiable", "verifier_error")
STATUSES = SCORED + UNSCORED

SCHEMA = pa.schema(
    [
        required("trace_id", pa.string()),
        required("task_id", pa.string()),
        required("model", pa.string()),
        required("status", pa.string()),
        required("verifier", pa.string()),
        required("verifier_config", pa.string()),
        required("detail", pa.string()),
        optional("score", pa.float64()),
        required("binary", pa.bool_()),
        required("seconds", pa.float32()),
    ]
)


def _score_agrees(status: str, score: float | None) -> bool:
    # An unknown status is found by the rule about statuses.
    return status not in STATUSES or (score is None) == (status in UNSCORED)


def _fault_scores_zero(status: str, score: float | None) -> bool:
    return status in ("ok", *UNSCORED) or status not in STATUSES or not score


CONTRACT = Contract(
    name="rewards",
    schema=SCHEMA,
    derived={
        "score_agrees": lambda rows: [
            _score_agrees(*row) for row in zip(rows["status"], rows["score"], strict=True)
        ],
        "score_in_unit": lambda rows: [unit(score) for score in rows["score"]],
        "binary_score": lambda rows: [
            not binary or score in (None, 0.0, 1.0) or not unit(score)
            for binary, score in zip(rows["binary"], rows["score"], strict=True)
        ],
        "fault_scores_zero": lambda rows: [
            _fault_scores_zero(*row) or not unit(row[1])
            for row in zip(rows["status"], rows["score"], strict=True)
        ],
        "seconds_ok": lambda rows: [math.isfinite(s) and s >= 0 for s in rows["seconds"]],
        "is_scored": lambda rows: [float(score is not None) for score in rows["score"]],
    },
    # A shard whose traces were all rejected has no rewards.
    empty="allow",
    rules=(
        unique("trace_id"),
        single("model"),
        matches("trace_id", ID_PATTERN, "32 lower-case hex characters"),
        matches("task_id", ID_PATTERN, "32 lower-case hex characters"),
        in_set("status", STATUSES),
        holds("score_agrees", "quarantine", f"null exactly with {' and '.join(UNSCORED)}"),
        holds("score_in_unit", "quarantine", "a score is in [0, 1]"),
        holds("binary_score", "quarantine", "a binary verifier scores 0 or 1"),
        holds("fault_scores_zero", "quarantine", "no_answer, timeout and crash score 0"),
        holds("seconds_ok", "quarantine", "a finite time that is not negative"),
        matches("verifier", r"\S", "must not be blank"),
        Rule(
            "scored_share",
            "ExpectColumnMeanToBeBetween",
            {"column": "is_scored", "min_value": 0.5},
            "warn",
            "at least half of a shard's traces have a score",
        ),
    ),
)


def validate(table: pa.Table) -> Report:
    """What the contract says about a rewards table."""
    return check(CONTRACT, table)
