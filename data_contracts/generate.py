"""Contract of the `traces` table: one row is one sample of one model for one task."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from data_contracts import ids
from data_contracts.errors import ContractError
from data_contracts.expectations import check
from data_contracts.fields import LOGPROBS, TEXT, TOKENS, optional, required
from data_contracts.flags import parse_json, seed_recomputes
from data_contracts.report import Report
from data_contracts.rules import (
    Contract,
    Derived,
    Rows,
    Rule,
    at_least,
    holds,
    in_set,
    matches,
    single,
    unique,
)

STATUSES = ("ok", "prompt_too_long", "engine_error")
FINISH_REASONS = ("stop", "length", "error")
PROOF_BYTES = 258
TOKENS_PER_PROOF = 32

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


def proof_bytes(n_output: int) -> int:
    """Bytes of proofs that go with so many output tokens."""
    return PROOF_BYTES * math.ceil(n_output / TOKENS_PER_PROOF)


def _sampling(text: str) -> dict[str, Any] | None:
    parsed = parse_json(text)
    try:
        return ids.normal_sampling(parsed) if isinstance(parsed, dict) else None
    except (ContractError, OverflowError):
        return None


def _not_negative(tokens: pa.Array) -> pa.Array:
    return pc.greater_equal(tokens, 0)


def _is_logprob(values: pa.Array) -> pa.Array:
    # Rounding may leave a log-probability a hair above zero.
    return pc.and_(pc.is_finite(values), pc.less_equal(values, 1e-3))


def _within_max_tokens(rows: Rows) -> list[bool]:
    parsed = [_sampling(text) for text in rows["sampling"]]
    # A row whose parameters cannot be read is found by the rule about them.
    return [
        p is None or length <= p["max_tokens"]
        for p, length in zip(parsed, rows.lengths("output_ids"), strict=True)
    ]


def _outcome_agrees(status: str, finish: str, error: str | None) -> bool:
    if status == "ok":
        return finish != "error" and error is None
    return finish == "error" and error is not None and bool(error.strip())


def _trace_id_ok(rows: Rows, run_seed: int) -> list[bool]:
    names = ("trace_id", "task_id", "model", "model_revision", "sampling", "sample_index")
    flags = []
    for trace, task, model, revision, sampling, index in zip(
        *(rows[n] for n in names), strict=True
    ):
        parsed = _sampling(sampling)
        flags.append(
            parsed is None
            or trace
            == ids.trace_id(
                task_id=task,
                model=model,
                model_revision=revision,
                sampling=parsed,
                run_seed=run_seed,
                sample_index=index,
            )
        )
    return flags


_DERIVED: dict[str, Derived] = {
    "seed_recomputes": lambda rows: [
        seed_recomputes(*row) for row in zip(rows["trace_id"], rows["seed"], strict=True)
    ],
    "sampling_complete": lambda rows: [_sampling(text) is not None for text in rows["sampling"]],
    "prompt_not_empty": lambda rows: [
        status != "ok" or length > 0
        for status, length in zip(rows["status"], rows.lengths("prompt_ids"), strict=True)
    ],
    "tokens_not_negative": lambda rows: [
        prompt and output
        for prompt, output in zip(
            rows.all_items("prompt_ids", _not_negative),
            rows.all_items("output_ids", _not_negative),
            strict=True,
        )
    ],
    "logprob_per_token": lambda rows: [
        tokens == logprobs
        for tokens, logprobs in zip(
            rows.lengths("output_ids"), rows.lengths("logprobs"), strict=True
        )
    ],
    "logprobs_ok": lambda rows: rows.all_items("logprobs", _is_logprob),
    "within_max_tokens": _within_max_tokens,
    "outcome_agrees": lambda rows: [
        _outcome_agrees(*row)
        for row in zip(rows["status"], rows["finish_reason"], rows["error"], strict=True)
    ],
    "seconds_ok": lambda rows: [math.isfinite(s) and s >= 0 for s in rows["seconds"]],
    "proofs_complete": lambda rows: [
        size == proof_bytes(length)
        for size, length in zip(rows.lengths("proofs"), rows.lengths("output_ids"), strict=True)
    ],
    "is_ok": lambda rows: [float(status == "ok") for status in rows["status"]],
}

_RULES = (
    unique("trace_id"),
    single("model"),
    single("model_revision"),
    matches("trace_id", ids.ID_PATTERN, "32 lower-case hex characters"),
    matches("task_id", ids.ID_PATTERN, "32 lower-case hex characters"),
    at_least("sample_index", 0),
    in_set("status", STATUSES),
    in_set("finish_reason", FINISH_REASONS),
    matches("engine", r"\S", "must not be blank"),
    holds("seed_recomputes", "quarantine", "the seed comes from the trace id"),
    holds("sampling_complete", "quarantine", f"JSON with exactly {', '.join(ids.SAMPLING_KEYS)}"),
    holds("prompt_not_empty", "quarantine", "an answer has a prompt"),
    holds("tokens_not_negative", "quarantine", "token ids are not negative"),
    holds("logprob_per_token", "quarantine", "one log-probability per output token"),
    holds("logprobs_ok", "quarantine", "log-probabilities are finite and not above zero"),
    holds("within_max_tokens", "quarantine", "no more output tokens than max_tokens"),
    holds(
        "outcome_agrees",
        "quarantine",
        "ok goes with stop or length and no error, else error and its text",
    ),
    holds("seconds_ok", "quarantine", "a finite time that is not negative"),
    # Only a warning: a trace without proofs gets its verdict, a rejection, from validation.
    holds("proofs_complete", "warn", "258 bytes of proofs per started 32 output tokens"),
    Rule(
        "ok_share",
        "ExpectColumnMeanToBeBetween",
        {"column": "is_ok", "min_value": 0.5},
        "warn",
        "at least half of a shard's traces are ok",
    ),
)

CONTRACT = Contract(name="traces", schema=SCHEMA, rules=_RULES, derived=_DERIVED)


@lru_cache(maxsize=8)
def _with_run_seed(run_seed: int) -> Contract:
    rule = holds("trace_id_recomputes", "quarantine", "must be the hash of what the trace is of")
    derived = {**_DERIVED, "trace_id_recomputes": lambda rows: _trace_id_ok(rows, run_seed)}
    return Contract(name="traces", schema=SCHEMA, rules=(*_RULES, rule), derived=derived)


def validate(table: pa.Table, run_seed: int | None = None) -> Report:
    """What the contract says about a traces table.

    The run's seed is not a column; with it the trace ids are computed again too.
    """
    return check(CONTRACT if run_seed is None else _with_run_seed(run_seed), table)
