"""Contract of the `difficulty` table: how often one model solves one task."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.fields import optional, required

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
