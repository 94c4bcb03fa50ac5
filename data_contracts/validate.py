"""Contract of the `verdicts` table: what validation says about each trace of a shard."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.fields import TEXTS, required

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
