"""Contract of the `rollouts` table: one row is one sample that a policy may be trained on.

The first 17 columns are those of the INTELLECT-2 code of June 2025, with their names, order and
types; ours follow. The same schema is what a node uploads and what is committed. Of the rewards a
node states nothing (nulls), or what must be equal to ours; committed rows hold ours, and a null
reward means that the sample could not be scored, which is not zero.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from data_contracts import expectations, ids
from data_contracts.expectations import check
from data_contracts.fields import LOGPROBS, TOKENS, optional, required
from data_contracts.generate import FINISH_REASONS, STATUSES, proof_bytes
from data_contracts.report import Report
from data_contracts.rules import Contract, Derived, Rows, at_least, holds, in_set, matches, unique

INTELLECT2_SCHEMA = pa.schema(
    [
        required("input_tokens", TOKENS),
        required("output_tokens", TOKENS),
        optional("input_logprobs", LOGPROBS),
        optional("output_logprobs", LOGPROBS),
        required("prompt", pa.string()),
        required("problem_id", pa.string()),
        required("completion", pa.string()),
        optional("advantages", pa.float32()),
        optional("rewards", pa.float32()),
        optional("task_rewards", pa.float32()),
        optional("length_penalties", pa.float32()),
        required("proofs", pa.binary()),
        # Version of the policy that made the sample; the step it was made for is `rollout_step`.
        required("step", pa.int32()),
        # Asked length in output tokens, -1 if none was asked for.
        required("target_lengths", pa.int32()),
        required("task_type", pa.string()),
        optional("seed", pa.int64()),
        required("temperature", pa.float32()),
    ]
)

SCHEMA = pa.schema(
    [
        *INTELLECT2_SCHEMA,
        required("sample_id", pa.string()),
        required("task_id", pa.string()),
        required("rollout_step", pa.int32()),
        required("group", pa.int32()),
        required("sample_index", pa.int32()),
        required("model", pa.string()),
        required("model_revision", pa.string()),
        required("sampling", pa.string()),
        required("status", pa.string()),
        required("finish_reason", pa.string()),
        optional("error", pa.string()),
        required("engine", pa.string()),
        required("node_id", pa.string()),
        required("transcript_hash", pa.binary()),
        required("signature", pa.binary()),
        required("seconds", pa.float32()),
    ]
)

REWARDS = ("advantages", "rewards", "task_rewards", "length_penalties")


def _is_logprob(values: pa.Array) -> pa.Array:
    return pc.and_(pc.is_finite(values), pc.less_equal(values, 1e-3))


def _finite_or_null(rows: Rows) -> list[bool]:
    return [
        all(value is None or math.isfinite(value) for value in values)
        for values in zip(*(rows[name] for name in REWARDS), strict=True)
    ]


_DERIVED: dict[str, Derived] = {
    "logprob_per_token": lambda rows: [
        given == length
        for given, length in zip(
            pc.list_value_length(rows.table.column("output_logprobs")).to_pylist(),
            rows.lengths("output_tokens"),
            strict=True,
        )
    ],
    "logprobs_ok": lambda rows: rows.all_items("output_logprobs", _is_logprob),
    "proofs_complete": lambda rows: [
        size == proof_bytes(length)
        for size, length in zip(rows.lengths("proofs"), rows.lengths("output_tokens"), strict=True)
    ],
    "rewards_finite": _finite_or_null,
    "not_from_the_future": lambda rows: [
        version <= step for version, step in zip(rows["step"], rows["rollout_step"], strict=True)
    ],
}

CONTRACT = Contract(
    name="rollouts",
    schema=SCHEMA,
    rules=(
        unique("sample_id"),
        matches("sample_id", ids.ID_PATTERN, "32 lower-case hex characters", "block"),
        matches("task_id", ids.ID_PATTERN, "32 lower-case hex characters", "block"),
        at_least("step", 0, "block"),
        at_least("target_lengths", -1, "block"),
        in_set("status", STATUSES, "block"),
        in_set("finish_reason", FINISH_REASONS, "block"),
        holds("logprob_per_token", "block", "one log-probability per output token"),
        holds("logprobs_ok", "block", "log-probabilities are finite and not above zero"),
        holds("proofs_complete", "block", "258 bytes of proofs per started 32 output tokens"),
        holds("rewards_finite", "block", "rewards and advantages are finite or null"),
        holds("not_from_the_future", "block", "a policy makes samples for its own step or later"),
    ),
    derived=_DERIVED,
)


def validate(table: pa.Table) -> Report:
    """What the contract says about a table that is to be committed."""
    return check(CONTRACT, table)


def load() -> None:
    """Load what the first `validate` of a process needs, which takes seconds."""
    expectations.load(CONTRACT)
