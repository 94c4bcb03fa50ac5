"""Every lie about rollouts is refused, is in the ledger with its reason, and costs the node all."""

import math

import pyarrow as pa
import pytest
from swarm import (
    LAYOUT,
    MODEL,
    SAMPLING,
    TOKENIZER,
    VOCABULARY,
    Node,
    make_job,
    packed,
    resigned,
)

from data_contracts import rollouts as contract
from data_contracts.ids import canonical_json
from infra.inference import load_engine
from infra.pool.ledger import entries
from tasks.generate.ingest import completion_text
from tasks.train.rollouts.errors import RolloutsRefused
from tasks.train.rollouts.job import Payload
from tasks.train.rollouts.policy import Policies
from tasks.train.rollouts.work import sample_groups
from toploc.signing import SigningKey


def forge_rewards(rows, payload, key):
    return [row | {"rewards": 1.0, "task_rewards": 1.0} for row in rows]


def forge_advantages(rows, payload, key):
    return [row | {"advantages": 3.0} for row in rows]


def forge_text(rows, payload, key):
    rows[0]["completion"] = "<think></think><answer>pmal</answer>"
    return rows


def another_version(rows, payload, key, number=3):
    """Weights of another version under the name of the one that was asked for."""
    asked = Payload.model_validate(payload)
    engine = Policies().of(MODEL, asked.broadcast).use(number)
    engine.revision = rows[0]["model_revision"]
    return sample_groups(asked.job, asked.job.groups, rows[0]["step"], engine, key)


def another_model(rows, payload, key):
    asked = Payload.model_validate(payload)
    engine = load_engine("tracemill/nano-m")
    engine.revision = rows[0]["model_revision"]
    return sample_groups(asked.job, asked.job.groups, rows[0]["step"], engine, key)


def cherry_pick_prompt(rows, payload, key):
    asked = Payload.model_validate(payload)
    easy = asked.job.groups[0]
    job = asked.job.model_copy(
        update={"groups": [easy, easy.model_copy(update={"group": asked.job.groups[1].group})]}
    )
    engine = Policies().of(MODEL, asked.broadcast).use(rows[0]["step"])
    return sample_groups(job, job.groups, rows[0]["step"], engine, key)


def cherry_pick_seeds(rows, payload, key):
    """The best of several tries: other seeds, claimed to be those that were asked for."""
    asked = Payload.model_validate(payload)
    groups = [
        group.model_copy(update={"seeds": [seed + 1 for seed in group.seeds]})
        for group in asked.job.groups
    ]
    engine = Policies().of(MODEL, asked.broadcast).use(rows[0]["step"])
    other = sample_groups(asked.job, groups, rows[0]["step"], engine, key)
    return [
        resigned(row, key, seed=honest["seed"]) for row, honest in zip(other, rows, strict=True)
    ]


def copy_within(rows, payload, key):
    """One sample given for all of its group."""
    first = {row["group"]: row for row in reversed(rows)}
    names = ("output_tokens", "output_logprobs", "proofs", "completion", "finish_reason")
    return [resigned(row, key, **{n: first[row["group"]][n] for n in names}) for row in rows]


def truncate(rows, payload, key, finish_reason="stop"):
    """Thoughts cut in the middle."""
    return [_cut(row, key, finish_reason) for row in rows]


def truncate_for_length(rows, payload, key):
    return truncate(rows, payload, key, "length")


def truncate_with_end(rows, payload, key):
    """Thoughts cut in the middle, with an end token put behind, and all else as for real."""
    asked = Payload.model_validate(payload)
    engine = Policies().of(MODEL, asked.broadcast).use(rows[0]["step"])
    (end,) = sorted(engine.eos_ids)[:1]
    return [_cut(row, key, "stop", end) for row in rows]


def _cut(row, key, finish_reason, end=None):
    keep = max(1, len(row["output_tokens"]) // 2)
    tokens, logprobs = row["output_tokens"][:keep], row["output_logprobs"][:keep]
    if end is not None:
        tokens[-1], logprobs[-1] = end, -0.01
    return resigned(
        row,
        key,
        output_tokens=tokens,
        output_logprobs=logprobs,
        proofs=row["proofs"][: 258 * math.ceil(keep / 32)],
        completion=completion_text(TOKENIZER, row["input_tokens"], tokens, []),
        finish_reason=finish_reason,
    )


def wrong_schema(rows, payload, key):
    schema = contract.SCHEMA.remove(contract.SCHEMA.get_field_index("seconds"))
    return packed([{n: row[n] for n in schema.names} for row in rows], schema)


def wider_type(rows, payload, key):
    at = contract.SCHEMA.get_field_index("rewards")
    schema = contract.SCHEMA.set(at, pa.field("rewards", pa.float64()))
    return packed(rows, schema)


def not_parquet(rows, payload, key):
    return b"PAR1" + b"x" * 100 + b"PAR1"


def cut_file(rows, payload, key):
    data = packed(rows)
    return data[: len(data) // 2]


def reward_above_one(rows, payload, key):
    return [row | {"task_rewards": 7.0} for row in rows]


def reward_nan(rows, payload, key):
    return [row | {"rewards": math.nan} for row in rows]


def advantage_infinite(rows, payload, key):
    return [row | {"advantages": -math.inf} for row in rows]


def logprob_nan(rows, payload, key):
    rows[1] = resigned(rows[1], key, output_logprobs=[math.nan] * len(rows[1]["output_tokens"]))
    return rows


def logprob_positive(rows, payload, key):
    rows[1] = resigned(rows[1], key, output_logprobs=[0.5] * len(rows[1]["output_tokens"]))
    return rows


def logprobs_flattered(rows, payload, key):
    return [
        resigned(row, key, output_logprobs=[value / 2 for value in row["output_logprobs"]])
        for row in rows
    ]


def token_outside(rows, payload, key):
    rows[0] = resigned(rows[0], key, output_tokens=[-5, *rows[0]["output_tokens"][1:]])
    return rows


def token_beyond(rows, payload, key):
    """One that the policy does not have, which the trainer would stop at."""
    tokens = [*rows[0]["output_tokens"][:-1], VOCABULARY]
    text = completion_text(TOKENIZER, rows[0]["input_tokens"], tokens, [])
    rows[0] = resigned(rows[0], key, output_tokens=tokens, completion=text)
    return rows


def same_sample_twice(rows, payload, key):
    rows[1] = rows[0]
    return rows


def fewer_samples(rows, payload, key):
    return rows[:-1]


def stale(rows, payload, key):
    return [resigned(row, key, step=row["step"] - 1) for row in rows]


def from_the_future(rows, payload, key):
    return [resigned(row, key, step=row["step"] + 1) for row in rows]


def other_seed(rows, payload, key):
    return [resigned(row, key, seed=row["seed"] ^ 1) for row in rows]


def other_temperature(rows, payload, key):
    settings = SAMPLING.model_copy(update={"temperature": 0.1}).as_dict()
    return [resigned(row, key, sampling=canonical_json(settings)) for row in rows]


def somebody_elses_signature(rows, payload, key):
    return [resigned(row, SigningKey(b"z" * 32)) for row in rows]


def changed_after_signing(rows, payload, key):
    rows[0]["output_logprobs"] = [value * 0.5 for value in rows[0]["output_logprobs"]]
    return rows


def no_proofs(rows, payload, key):
    return [resigned(row, key, proofs=b"") for row in rows]


def zero_proofs(rows, payload, key):
    return [resigned(row, key, proofs=bytes(len(row["proofs"]))) for row in rows]


def slow(*case):
    """A lie like one that the default tests have."""
    return pytest.param(*case, marks=pytest.mark.slow)


CHEAP = [
    (forge_text, "other_completion"),
    (cherry_pick_prompt, "other_prompt"),
    (wrong_schema, "wrong_schema"),
    slow(wider_type, "wrong_schema"),
    slow(fewer_samples, "wrong_schema"),
    (reward_above_one, "reward_out_of_bounds"),
    slow(reward_nan, "reward_not_finite"),
    (advantage_infinite, "reward_not_finite"),
    (logprob_nan, "impossible"),
    slow(logprob_positive, "impossible"),
    slow(token_outside, "impossible"),
    (token_beyond, "impossible"),
    (same_sample_twice, "other_samples"),
    (stale, "stale_policy"),
    slow(from_the_future, "future_policy"),
    slow(other_seed, "other_seed"),
    slow(other_temperature, "other_settings"),
    slow(somebody_elses_signature, "other_node"),
    (changed_after_signing, "transcript_mismatch"),
    slow(no_proofs, "proof_length"),
]
"""Lies that need no prefill to be seen."""

PREFILL = [
    (forge_rewards, {"forged_rewards"}),
    slow(forge_advantages, {"forged_rewards"}),
    (another_version, {"chunk_error", "error_mean", "logprob_error", "margin_mean"}),
    (another_model, {"chunk_error", "error_mean", "logprob_error", "margin_mean"}),
    slow(cherry_pick_seeds, {"margin_mean", "token_margin"}),
    (copy_within, {"margin_mean", "token_margin"}),
    (truncate, {"stopped_without_end"}),
    slow(truncate_for_length, {"stopped_short_of_length"}),
    (truncate_with_end, {"token_margin"}),
    slow(logprobs_flattered, {"logprob_error"}),
    slow(zero_proofs, {"proof_modulus"}),
]


def refused(start, lie):
    """What the ledger and the refusal say of one lie."""
    liar, honest = Node(1, lie), Node(2)
    run = start([liar, honest])
    job = make_job()
    with pytest.raises(RolloutsRefused) as caught:
        run.take(job)
    assert caught.value.lie and caught.value.evidence
    (slash,) = [entry.record for entry in entries(run.store)]
    assert (slash.kind, slash.node_id) == ("slash", liar.key.node_id)
    assert slash.reason == "; ".join(caught.value.reasons)
    assert slash.evidence == caught.value.evidence
    assert run.pool.distrusted == [liar.key.node_id]
    assert run.intake.accepted.of(job) is None
    assert run.store.list(f"{LAYOUT.root}/received") == []
    return run, caught.value


@pytest.mark.parametrize(("lie", "code"), CHEAP, ids=lambda value: getattr(value, "__name__", ""))
def test_a_lie_that_needs_no_prefill(start, lie, code):
    run, refusal = refused(start, lie)
    assert refusal.lie
    assert {reason.partition(":")[0] for reason in refusal.reasons} == {code}
    assert run.pool.checks == []


@pytest.mark.parametrize(("lie", "codes"), PREFILL, ids=lambda v: getattr(v, "__name__", ""))
def test_a_lie_that_a_prefill_shows(start, lie, codes):
    run, refusal = refused(start, lie)
    found = {reason.partition(":")[0] for reason in "; ".join(refusal.reasons).split("; ")}
    assert found & codes, found
    assert len(run.pool.checks) == 1
