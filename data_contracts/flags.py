"""Row flags that several contracts derive: ids that recompute, JSON that parses, messages.

Invariant: every function gives an answer for any row that fits the schema, also hostile ones.
"""

from __future__ import annotations

import json
import math
from typing import Any

from data_contracts import ids
from data_contracts.errors import ContractError

ROLES = frozenset({"system", "user", "assistant"})
NO_JSON = object()
"""Marks a text that is not JSON; `null` is JSON."""


def parse_json(text: str) -> Any:
    """The value, or NO_JSON for what does not parse strictly (NaN and Infinity do not)."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return NO_JSON


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def is_json_object(text: str) -> bool:
    """Whether the text is a JSON object."""
    return isinstance(parse_json(text), dict)


def task_id_recomputes(task_id: str, task_type: str, prompt: Any, info: str) -> bool:
    """Whether the task id is the hash of the row's own content."""
    parsed = parse_json(info)
    if parsed is NO_JSON:
        return False
    try:
        return ids.task_id(task_type, prompt, parsed) == task_id
    except (ContractError, RecursionError):
        return False


def seed_recomputes(trace_id: str, seed: int) -> bool:
    """Whether the seed comes from the trace id."""
    return trace_id.isascii() and ids.trace_seed(trace_id) == seed


def messages_ok(messages: list[dict[str, str]], last: str) -> bool:
    """Known roles, no empty text, and `last` speaks last."""
    return (
        bool(messages)
        and all(m["role"] in ROLES and m["content"].strip() for m in messages)
        and messages[-1]["role"] == last
    )


def unit(value: float | None) -> bool:
    """Null, or a number in [0, 1]; NaN is neither, though pandas takes it for a null."""
    return value is None or (math.isfinite(value) and 0.0 <= value <= 1.0)


def close(left: float, right: float) -> bool:
    """Equal but for rounding."""
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
