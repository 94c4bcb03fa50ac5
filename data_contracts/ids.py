"""Content ids: the same content gives the same id in every process and on every machine.

Invariants: an id is 32 lower-case hex characters, the first 16 bytes of SHA-256 over canonical
JSON (keys sorted, no white space, UTF-8, NaN and Infinity refused). Values that JSON would merge
silently (keys that are not strings, 1 and 1.0 in sampling parameters) are refused or normalised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from data_contracts.errors import BadValue

SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "stop")
# `$` would let a line break at the end pass; pandas takes `\Z` with both of its regex engines.
ID_PATTERN = r"^[0-9a-f]{32}\Z"
MAX_SEED = 2**63 - 1


def canonical_json(obj: object) -> str:
    """The one JSON text of an object."""
    _check(obj, "$")
    try:
        text = json.dumps(
            obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        text.encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise BadValue(
            f"no canonical JSON for a {type(obj).__name__}: {type(error).__name__}. Allowed: "
            "finite numbers, valid Unicode text, lists and objects; clean the text with "
            "data_contracts.text.clean_text and write NaN as null"
        ) from error
    return text


def _check(obj: object, where: str) -> None:
    if isinstance(obj, dict):
        for key, value in obj.items():
            if not isinstance(key, str):
                raise BadValue(
                    f"key {key!r} at {where} is a {type(key).__name__}; JSON keys are strings: "
                    "write it as text before the id is made"
                )
            _check(value, f"{where}.{key}")
    elif isinstance(obj, list | tuple):
        for position, value in enumerate(obj):
            _check(value, f"{where}[{position}]")


def content_id(obj: object) -> str:
    """H(object) of the schemas: 32 hex characters."""
    return hashlib.sha256(canonical_json(obj).encode("utf-8")).hexdigest()[:32]


def task_id(task_type: str, prompt: Sequence[Mapping[str, Any]], verification_info: object) -> str:
    """Id of a task; `verification_info` is the parsed object, not its JSON text."""
    messages = [{"role": message["role"], "content": message["content"]} for message in prompt]
    return content_id(
        {"task_type": task_type, "prompt": messages, "verification_info": verification_info}
    )


def normal_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters with exactly the known keys and one number type each.

    Without it a config that says `1` and one that says `1.0` would give other trace ids.
    """
    unknown, missing = set(sampling) - set(SAMPLING_KEYS), set(SAMPLING_KEYS) - set(sampling)
    if unknown or missing:
        raise BadValue(
            f"sampling parameters: unknown {sorted(unknown)}, missing {sorted(missing)}; "
            f"needed are exactly {list(SAMPLING_KEYS)}"
        )
    try:
        return {
            "temperature": float(sampling["temperature"]),
            "top_p": float(sampling["top_p"]),
            "top_k": int(sampling["top_k"]),
            "min_p": float(sampling["min_p"]),
            "max_tokens": int(sampling["max_tokens"]),
            "stop": [str(text) for text in sampling["stop"]],
        }
    except (TypeError, ValueError) as error:
        raise BadValue(
            f"sampling parameters {dict(sampling)!r}: {error}; temperature, top_p and min_p are "
            "numbers, top_k and max_tokens integers, stop a list of texts"
        ) from error


def trace_id(
    *,
    task_id: str,
    model: str,
    model_revision: str,
    sampling: Mapping[str, Any],
    run_seed: int,
    sample_index: int,
) -> str:
    """Id of one sample of one model for one task."""
    return content_id(
        {
            "task_id": task_id,
            "model": model,
            "model_revision": model_revision,
            "sampling": normal_sampling(sampling),
            "run_seed": int(run_seed),
            "sample_index": int(sample_index),
        }
    )


def trace_seed(trace_id: str) -> int:
    """Seed of a trace: it depends on the id only, never on shard or batch. 0 <= seed < 2**63."""
    digest = hashlib.sha256(b"tracemill-seed" + trace_id.encode("ascii")).digest()
    return int.from_bytes(digest[:8], "big") & MAX_SEED


def shard_id(*, model: str, trace_ids: Sequence[str], batch_plan: Sequence[int]) -> str:
    """Id of a shard: which traces, in which order, decoded in which batches."""
    plan = [int(batch) for batch in batch_plan]
    return content_id({"model": model, "trace_ids": list(trace_ids), "batch_plan": plan})


def model_slug(model: str) -> str:
    """A model id as one path segment."""
    return model.replace("/", "--")
