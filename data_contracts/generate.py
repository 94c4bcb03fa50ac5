"""Contract of the `traces` table: one row is one sample of one model for one task."""

from __future__ import annotations

import pyarrow as pa

from data_contracts.fields import LOGPROBS, TEXT, TOKENS, optional, required

SCHEMA = pa.schema(
    [
        required("trace_id", pa.string()),
        required("task_id", pa.string()),
        required("model", pa.string()),
        required("model_revision", pa.string()),
        required("sample_index", pa.int32()),
        required("seed", pa.int64()),
        required("sampling", pa.string()),
        required("prompt_ids", TOKENS),
        required("output_ids", TOKENS),
        required("logprobs", LOGPROBS),
        required("completion", TEXT),
        required("status", pa.string()),
        required("finish_reason", pa.string()),
        optional("error", pa.string()),
        required("proofs", pa.binary()),
        optional("stage_proofs", pa.list_(pa.binary())),
        optional("transcript_hash", pa.binary()),
        optional("signature", pa.binary()),
        required("engine", pa.string()),
        required("node_id", pa.string()),
        optional("group_id", pa.string()),
        required("seconds", pa.float32()),
    ]
)
