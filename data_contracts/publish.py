"""Contracts of the four published configs. No proofs, times or node ids: the bytes depend on
content alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from data_contracts.errors import BadValue
from data_contracts.fields import MESSAGES, TEXT, optional, required

CONFIGS = ("full", "sft_verified", "sft_unverified", "rl")

_FULL = pa.schema(
    [
        required("problem_id", pa.string()),
        required("task_id", pa.string()),
        required("task_type", pa.string()),
        required("prompt", MESSAGES),
        required("verification_info", TEXT),
        required("model", pa.string()),
        required("sample_index", pa.int32()),
        required("completion", TEXT),
        required("finish_reason", pa.string()),
        optional("reward", pa.float64()),
        required("reward_status", pa.string()),
        required("binary", pa.bool_()),
    ]
)
_SFT = pa.schema(
    [
        required("problem_id", pa.string()),
        required("task_id", pa.string()),
        required("task_type", pa.string()),
        required("messages", MESSAGES),
        required("completion", TEXT),
        optional("reward", pa.float64()),
        required("reward_status", pa.string()),
    ]
)
_RL = (
    required("problem_id", pa.string()),
    required("task_id", pa.string()),
    required("task_type", pa.string()),
    required("prompt", MESSAGES),
    required("verification_info", TEXT),
)


def rl(annotators: Sequence[str]) -> pa.Schema:
    """Schema of the `rl` config: difficulty columns per annotator slug, in the order given."""
    fields = list(_RL)
    for slug in annotators:
        fields.append(optional(f"avg_reward_{slug}", pa.float64()))
        fields.append(optional(f"pass_rate_{slug}", pa.float64()))
        fields.append(required(f"n_{slug}", pa.int32()))
    return pa.schema(fields)


SCHEMAS = {"full": _FULL, "sft_verified": _SFT, "sft_unverified": _SFT, "rl": rl}
"""Config -> schema; for `rl` a function of the annotator slugs."""


def schema(config: str, annotators: Sequence[str] = ()) -> pa.Schema:
    """Schema of one published config."""
    if config == "rl":
        return rl(annotators)
    if config not in CONFIGS:
        raise BadValue(f"published config {config!r} is unknown; there are {list(CONFIGS)}")
    return SCHEMAS[config]
