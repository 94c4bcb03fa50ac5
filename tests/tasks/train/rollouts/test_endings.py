"""Where a rollout ends: nothing behind its end token counts, and a cut one cannot pass as whole."""

import pytest
from swarm import SAMPLING, TOKENIZER, Node, make_job, resigned

from data_contracts.generate import proof_bytes
from infra.storage import read_table
from tasks.generate.ingest import completion_text
from tasks.train.objective import LengthConfig
from tasks.train.rollouts.errors import RolloutsRefused
from tasks.train.rounds.selection import rows_of

MASK = LengthConfig(overlong="mask")
HOT = 4.0
"""Temperature at which most samples meet the limit."""


def padded(rows, payload, key):
    """Two more tokens behind the end token, as a batch would be padded."""
    return [_longer(row, key) if row["finish_reason"] == "stop" else row for row in rows]


def _longer(row, key):
    tokens = [*row["output_tokens"], row["output_tokens"][-1], row["output_tokens"][-1]]
    proofs = row["proofs"] + bytes(proof_bytes(len(tokens)) - len(row["proofs"]))
    return resigned(
        row,
        key,
        output_tokens=tokens,
        output_logprobs=[*row["output_logprobs"], -1.0, -1.0],
        proofs=proofs,
        completion=completion_text(TOKENIZER, row["input_tokens"], tokens, []),
    )


def said_to_be_whole(rows, payload, key):
    """What the limit cut is called complete."""
    return [resigned(row, key, finish_reason="stop") for row in rows]


def said_to_be_cut(rows, payload, key):
    """What ended by itself is called cut, so that it would carry no loss."""
    return [resigned(row, key, finish_reason="length") for row in rows]


@pytest.mark.parametrize(
    ("lie", "temperature", "reason"),
    [
        (padded, 1.0, "goes_on_after_end"),
        (said_to_be_whole, HOT, "stopped_without_end"),
        (said_to_be_cut, 1.0, "stopped_short_of_length"),
    ],
)
def test_an_ending_that_cannot_be_is_refused(start, lie, temperature, reason):
    run = start([Node(1, lie)])
    with pytest.raises(RolloutsRefused) as refusal:
        run.take(make_job(size=2, temperature=temperature))
    assert any(reason in each for each in refusal.value.reasons)


def test_an_honest_end_is_trained_and_an_honest_cut_is_known(start):
    """Each sample is its tokens through the first end token; padding never was among them."""
    run = start([Node(1)])
    manifest = run.take(make_job(size=2, temperature=HOT))
    rows = read_table(run.store, manifest.path).to_pylist()
    assert {row["finish_reason"] for row in rows} == {"stop", "length"}
    for row in rows:
        tokens = row["output_tokens"]
        ends = [at for at, token in enumerate(tokens) if token in TOKENIZER.eos_ids]
        stopped = row["finish_reason"] == "stop"
        assert ends == ([len(tokens) - 1] if stopped else [])
        assert stopped or len(tokens) == SAMPLING.max_tokens
    kept = rows_of(run.store, manifest.path, MASK)
    assert [row["trainable"] for row in kept] == [r["finish_reason"] == "stop" for r in rows]
