"""Signed traces of a real model, changed after they were signed or signed by a node that lies."""

import copy
import json

import pytest

from data_contracts.ids import trace_seed
from infra.inference import load_engine
from infra.inference.protocol import Request, SamplingParams
from tasks.generate.work import ProofSink
from tasks.validate.binding import COLUMNS, bound
from tasks.validate.check import Verdict
from tasks.validate.config import ValidateConfig
from tasks.validate.work import judge
from toploc.signing import SigningKey
from toploc.transcript import Transcript

KEY, OTHER_KEY = SigningKey(bytes([9]) * 32), SigningKey(bytes([8]) * 32)
WORDS = ("lamp", "stone", "river", "cat", "window", "paper", "green", "mill")
# So hot that hardly a text ends before three proofs are full.
SAMPLING = {
    "temperature": 3.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 96, "stop": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def engine():
    loaded = load_engine("tracemill/nano-s")
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def honest(engine):
    requests, sink = [], ProofSink()
    for number, word in enumerate(WORDS):
        ids, _ = engine.render([{"role": "user", "content": f"Spell this word backward: {word}"}])
        trace_id = f"{number:032x}"
        requests.append(Request(trace_id, tuple(ids), trace_seed(trace_id)))
    done = engine.generate(requests, SamplingParams(**SAMPLING | {"stop": ()}), sink)
    rows = [
        {
            "trace_id": request.trace_id,
            "model_revision": engine.revision,
            "prompt_ids": list(request.prompt_ids),
            "output_ids": completion.output_ids,
            "sampling": json.dumps(SAMPLING),
            "seed": request.seed,
            "status": completion.status,
            "finish_reason": completion.finish_reason,
            "logprobs": completion.logprobs,
            "proofs": sink.of(request.trace_id),
            "engine": engine.environment,
            "node_id": KEY.node_id,
            "group_id": None,
            "stage_proofs": None,
        }
        for request, completion in zip(requests, done, strict=True)
    ]
    long = [row for row in rows if len(row["proofs"]) == 3 * 258][:4]
    assert len(long) == 4
    for row in long:
        sign(row)
    return long


def sign(row, key=KEY):
    row["transcript_hash"], row["signature"] = Transcript.of_row(row).sign(key)


def codes(engine, rows):
    """Reason codes and whether they speak against the node, of the first row; others are honest."""
    found = bound(rows, judge(rows, engine, ValidateConfig()))
    first, *others = [found[row["trace_id"]] for row in rows]
    assert [one.verdict for one in others] == ["accepted"] * len(others)
    assert (first.verdict == "accepted") == (not first.reasons)
    return [reason.partition(":")[0] for reason in first.reasons], first.figures.get("soft", False)


def test_signed_honest_traces_are_accepted(engine, honest):
    assert honest[0].keys() == set(COLUMNS)
    assert codes(engine, honest) == ([], False)


def chunks(row):
    return [row["proofs"][start : start + 258] for start in range(0, len(row["proofs"]), 258)]


def permute(row, other):
    first, second, third = chunks(row)
    row["proofs"] = first + third + second


def copy_proofs(row, other):
    row["proofs"] = other["proofs"]


def one_copied_chunk(row, other):
    row["proofs"] = chunks(row)[0] + chunks(other)[1] + chunks(row)[2]


def change_token(row, other):
    row["output_ids"][40] = row["output_ids"][40] % 200 + 1


@pytest.mark.parametrize(
    ("forge", "code"),
    [
        (permute, "permuted_chunks"),
        (copy_proofs, "copied_proof"),
        (one_copied_chunk, "copied_proof"),
        (change_token, None),
    ],
)
def test_a_node_that_signs_what_it_forged_is_refused_for_that(engine, honest, forge, code):
    rows = copy.deepcopy(honest)
    forge(rows[0], rows[1])
    sign(rows[0])
    found, soft = codes(engine, rows)
    assert not soft and "transcript_mismatch" not in found
    provenance = {"permuted_chunks", "copied_proof"}.intersection(found)
    assert provenance == ({code} if code else set())
    assert set(found) - provenance, "a proof that does not fit is refused by its figures first"


def test_a_copied_proof_is_a_lie_wherever_it_was_made(engine, honest):
    rows = copy.deepcopy(honest)
    copy_proofs(rows[0], rows[1])
    rows[0]["engine"] = "transformers|SomeVendor-1-1+avx9|float32|sdpa_grouped"
    sign(rows[0])
    found, soft = codes(engine, rows)
    assert not soft and {"outside_calibration", "copied_proof"} <= set(found)


@pytest.mark.parametrize(
    "forge",
    [
        permute,
        copy_proofs,
        change_token,
        lambda row, other: row.update(finish_reason="stop"),
        lambda row, other: row.update(engine="another"),
        lambda row, other: row.update(logprobs=[value - 1e-6 for value in row["logprobs"]]),
        lambda row, other: row.update(node_id=OTHER_KEY.node_id),
        lambda row, other: row.update(group_id="0a"),
        lambda row, other: row.update(transcript_hash=other["transcript_hash"]),
    ],
)
def test_a_row_changed_after_signing_is_refused_and_not_held_against_its_node(
    engine, honest, forge
):
    rows = copy.deepcopy(honest)
    forge(rows[0], rows[1])
    found, soft = codes(engine, rows)
    assert soft and found.count("transcript_mismatch") == 1
    if forge is copy_proofs:
        assert "copied_proof" in found
    if forge is permute:
        assert "permuted_chunks" in found


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"signature": None}, "unsigned"),
        ({"transcript_hash": None}, "unsigned"),
        ({"signature": bytes(64)}, "bad_signature"),
    ],
)
def test_a_row_without_the_signature_of_its_node_is_refused(engine, honest, change, code):
    rows = copy.deepcopy(honest)
    rows[0].update(change)
    assert codes(engine, rows) == ([code], True)


def test_a_row_in_the_name_of_another_node_is_refused(engine, honest):
    rows = copy.deepcopy(honest)
    rows[0]["node_id"] = OTHER_KEY.node_id
    rows[0]["transcript_hash"] = Transcript.of_row(rows[0]).digest()
    assert codes(engine, rows) == (["bad_signature"], True)


def test_a_crash_of_ours_does_not_hide_a_broken_signature(honest):
    rows = copy.deepcopy(honest[:2])
    rows[0]["signature"] = None
    crashed = {row["trace_id"]: Verdict("crashed", ["validator:Error"]) for row in rows}
    first, second = bound(rows, crashed).values()
    assert (first.verdict, second.verdict) == ("rejected", "crashed")
    assert first.reasons == ["unsigned: the trace has no transcript hash or no signature"]


def test_what_was_not_audited_is_refused_as_well(engine, honest):
    rows = copy.deepcopy(honest[:2])
    rows[0]["engine"] = "another"
    found = bound(rows, judge(rows, engine, ValidateConfig(), audited=False))
    assert [one.verdict for one in found.values()] == ["rejected", "accepted_unaudited"]
