"""Contract of the `rewards` table: the score of each accepted trace, or why there is none."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.fields import optional, required

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
