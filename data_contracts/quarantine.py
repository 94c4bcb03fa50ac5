"""Contract of a quarantine table: a row as it came, why it was set aside, where it came from."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.fields import TEXT, required

SCHEMA = pa.schema(
    [
        required("stage", pa.string()),
        required("reason", pa.string()),
        required("row", TEXT),
        required("origin", pa.string()),
    ]
)
