"""Contract of the `plan` table: which traces a shard holds, and in which batches."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.fields import required

SCHEMA = pa.schema(
    [
        required("trace_id", pa.string()),
        required("task_id", pa.string()),
        required("model", pa.string()),
        required("shard_id", pa.string()),
        required("sample_index", pa.int32()),
        required("batch", pa.int32()),
        required("position", pa.int32()),
        required("seed", pa.int64()),
    ]
)
