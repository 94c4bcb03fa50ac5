"""Arrow types that several contracts share.

Types are checked on the Arrow schema, never in Great Expectations: pandas has other types.
"""

from __future__ import annotations

import pyarrow as pa

MESSAGES = pa.list_(
    pa.struct([pa.field("role", pa.string()), pa.field("content", pa.large_string())])
)
TOKENS = pa.list_(pa.int32())
LOGPROBS = pa.list_(pa.float32())
TEXTS = pa.list_(pa.string())
TEXT = pa.large_string()
"""Text of any length: `string` overflows at 2 GiB per chunk."""


def required(name: str, type_: pa.DataType) -> pa.Field:
    """A column that holds no nulls."""
    return pa.field(name, type_, nullable=False)


def optional(name: str, type_: pa.DataType) -> pa.Field:
    """A column that may hold nulls."""
    return pa.field(name, type_, nullable=True)
