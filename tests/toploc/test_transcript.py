import hashlib
from dataclasses import fields, replace

import numpy as np
import pytest

from toploc.signing import SigningKey
from toploc.transcript import Transcript, digest

KEY = SigningKey(bytes(range(32)))
CHUNK = 258
TRACE = Transcript(
    trace_id="t" * 32,
    model_revision="r" * 32,
    prompt_ids=[1, 2, 3],
    output_ids=[4, 5],
    sampling='{"temperature":1.0}',
    seed=7,
    status="ok",
    finish_reason="stop",
    logprobs=[-0.5, -0.25],
    proofs=b"a" * CHUNK + b"b" * CHUNK,
    engine="transformers|cpu|float32|sdpa",
    node_id=KEY.node_id,
    group_id="0a",
    stage_proofs=[b"x", b"yz"],
)
OTHER = {
    "trace_id": "u" * 32,
    "model_revision": "s" * 32,
    "prompt_ids": [1, 2],
    "output_ids": [4, 6],
    "sampling": '{"temperature":1}',
    "seed": 8,
    "status": "engine_error",
    "finish_reason": "length",
    "logprobs": [-0.5, -0.2500001],
    "proofs": b"b" * CHUNK + b"a" * CHUNK,
    "engine": "other",
    "node_id": "0" * 64,
    "group_id": None,
    "stage_proofs": [b"xy", b"z"],
}


def test_every_field_changes_the_hash():
    assert OTHER.keys() == {field.name for field in fields(Transcript)}
    hashes = {replace(TRACE, **{name: value}).digest() for name, value in OTHER.items()}
    assert len(hashes | {TRACE.digest()}) == len(OTHER) + 1


@pytest.mark.parametrize("name", OTHER)
def test_a_trace_that_was_changed_after_signing_is_found_out(name):
    hashed, signature = TRACE.sign(KEY)
    assert TRACE.faults(hashed, signature) == []
    (fault,) = replace(TRACE, **{name: OTHER[name]}).faults(hashed, signature)
    assert fault.startswith("transcript_mismatch:")


def test_a_hash_that_is_made_again_lacks_the_signature():
    _, signature = TRACE.sign(KEY)
    changed = replace(TRACE, proofs=b"c" * CHUNK)
    (fault,) = changed.faults(changed.digest(), signature)
    assert fault.startswith("bad_signature:")
    assert TRACE.faults(None, signature)[0].startswith("unsigned:")
    assert TRACE.faults(TRACE.digest(), None)[0].startswith("unsigned:")


def test_a_node_signs_in_its_own_name_only():
    with pytest.raises(ValueError, match="signs only what it made"):
        replace(TRACE, node_id="0" * 64).sign(KEY)


def test_the_hash_does_not_depend_on_how_the_values_are_held():
    row = {field.name: getattr(TRACE, field.name) for field in fields(Transcript)}
    held = row | {
        "prompt_ids": np.array([1, 2, 3], np.int32),
        "output_ids": (4, 5),
        "logprobs": np.array([-0.5, -0.25], np.float32),
        "stage_proofs": (b"x", b"yz"),
        "another column": 1,
    }
    assert Transcript.of_row(held).digest() == TRACE.digest()


def test_the_hash_of_the_first_version_stays():
    """A stored signature must hold for ever: a new encoding needs a new domain."""
    assert digest("d", 1, "a", b"b", None, [b"c"], np.array([1], np.int64)) == (
        hashlib.sha256(
            b"toploc/v2/"
            b"s\0\0\0\0\0\0\0\1d"
            b"i\0\0\0\0\0\0\0\1"
            b"s\0\0\0\0\0\0\0\1a"
            b"b\0\0\0\0\0\0\0\1b"
            b"n"
            b"l\0\0\0\0\0\0\0\1b\0\0\0\0\0\0\0\1c"
            b"as\0\0\0\0\0\0\0\3>i8b\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\1"
        ).digest()
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("d", "ab", "c"), ("d", "a", "bc")),
        (("d", b"ab"), ("d", "ab")),
        (("da",), ("d", "a")),
        (("d", [b"ab"]), ("d", [b"a", b"b"])),
        (("d", None), ("d",)),
        (("d", 0), ("d", None)),
        (("d", np.array([1, 2])), ("d", np.array([1]), np.array([2]))),
        (("d", np.array([1.0], np.float32)), ("d", np.array([0x3F800000], np.int32))),
        (("d", b"x"), ("e", b"x")),
    ],
)
def test_different_values_never_have_the_same_encoding(one, other):
    assert digest(*one) != digest(*other)
