"""Contract of the `verdicts` table: what validation says about each trace of a shard."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.expectations import check
from data_contracts.fields import TEXTS, required
from data_contracts.flags import is_json_object
from data_contracts.ids import ID_PATTERN
from data_contracts.report import Report
from data_contracts.rules import Contract, holds, in_set, matches, single, unique

VERDICTS = ("accepted", "accepted_unaudited", "rejected", "incomplete", "crashed", "revoked")

SCHEMA = pa.schema(
    [
        required("trace_id", pa.string()),
        required("shard_id", pa.string()),
        required("verdict", pa.string()),
        required("reasons", TEXTS),
        required("figures", pa.string()),
        required("validator", pa.string()),
    ]
)


def _reasons_agree(verdict: str, reasons: list[str]) -> bool:
    if verdict == "accepted":
        return not reasons
    return verdict == "accepted_unaudited" or any(reason.strip() for reason in reasons)


CONTRACT = Contract(
    name="verdicts",
    schema=SCHEMA,
    derived={
        "reasons_agree": lambda rows: [
            _reasons_agree(*row) for row in zip(rows["verdict"], rows["reasons"], strict=True)
        ],
        "figures_json": lambda rows: [is_json_object(text) for text in rows["figures"]],
    },
    rules=(
        unique("trace_id"),
        single("shard_id"),
        matches("trace_id", ID_PATTERN, "32 lower-case hex characters"),
        matches("shard_id", ID_PATTERN, "32 lower-case hex characters"),
        in_set("verdict", VERDICTS),
        holds("reasons_agree", "quarantine", "accepted has no reason, every refusal has one"),
        holds("figures_json", "quarantine", "must be a JSON object"),
        matches("validator", r"\S", "must not be blank"),
    ),
)


def validate(table: pa.Table) -> Report:
    """What the contract says about a verdicts table."""
    return check(CONTRACT, table)
