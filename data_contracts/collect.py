"""Contract of the `tasks` table: one row is one task, with what its verifier needs."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.fields import MESSAGES, TEXT, optional, required

SCHEMA = pa.schema(
    [
        required("task_id", pa.string()),
        required("problem_id", pa.string()),
        required("source", pa.string()),
        required("task_type", pa.string()),
        required("prompt", MESSAGES),
        required("verification_info", TEXT),
        required("metadata", pa.string()),
        optional("gold", TEXT),
        required("binary", pa.bool_()),
    ]
)
