"""Contract of a quarantine table: a row as it came, why it was set aside, where it came from."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.expectations import check
from data_contracts.fields import TEXT, required
from data_contracts.flags import is_json_object
from data_contracts.report import Report
from data_contracts.rules import Contract, holds, matches

SCHEMA = pa.schema(
    [
        required("stage", pa.string()),
        required("reason", pa.string()),
        required("row", TEXT),
        required("origin", pa.string()),
    ]
)

CONTRACT = Contract(
    name="quarantine",
    schema=SCHEMA,
    derived={"row_json": lambda rows: [is_json_object(text) for text in rows["row"]]},
    empty="allow",
    # Rows that were set aside cannot be set aside once more: a fault here is the writer's.
    rules=(
        matches("stage", r"^[a-z_]+\Z", "the name of a stage", "block"),
        matches("reason", r"\S", "must not be blank", "block"),
        matches("origin", r"\S", "must not be blank", "warn"),
        holds("row_json", "block", "must be a JSON object"),
    ),
)


def validate(table: pa.Table) -> Report:
    """What the contract says about a quarantine table."""
    return check(CONTRACT, table)
