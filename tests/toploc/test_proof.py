import hashlib
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toploc import ProofPoly, sha256sum
from toploc.errors import MalformedProof, NoInjectiveModulus, ToplocError
from toploc.poly import find_injective_modulus


def test_value_of_a_known_polynomial():
    assert ProofPoly([1, 2, 3, 4], 65497)(42) == (1 + 2 * 42 + 3 * 42**2 + 4 * 42**3) % 65497


def test_a_proof_is_a_plain_value():
    proof = ProofPoly([1, 2, 3], 65497)
    assert repr(proof) == "ProofPoly[65497]([1, 2, 3])"
    assert len(proof) == 3
    assert proof == pickle.loads(pickle.dumps(proof))
    assert proof != ProofPoly([1, 2, 4], 65497)
    assert proof != ProofPoly([1, 2, 3], 65496)


def test_bytes_are_big_endian_modulus_first():
    proof = ProofPoly([0x1B42, 0x2B67, 0xBA4B, 0x756D], 0xFFD9)
    assert proof.to_bytes().hex() == "ffd91b422b67ba4b756d"
    assert proof.to_base64() == "/9kbQitnukt1bQ=="
    assert ProofPoly.from_bytes(proof.to_bytes()) == proof
    assert ProofPoly.from_base64(proof.to_base64()) == proof


def test_the_null_proof_can_be_stored_but_is_faulty():
    null = ProofPoly.from_bytes(ProofPoly.null(4).to_bytes())
    assert null == ProofPoly([0, 0, 0, 0], 0)
    assert "null proof" in null.faults()[0]


@pytest.mark.parametrize("x_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("y_type", [torch.bfloat16, torch.float16, torch.int32, torch.int64])
def test_points_in_tensors(x_type, y_type):
    x = torch.tensor([5, 70000, 12, 3], dtype=x_type)
    y = torch.tensor([1, -2, 3, -4]).to(y_type)
    if y_type in (torch.int32, torch.int64):
        y = y.abs()
    proof = ProofPoly.from_points_tensor(x, y)
    bits = y.view(torch.int16).long() & 0xFFFF if y.is_floating_point() else y
    assert [proof(v % proof.modulus) for v in x.tolist()] == bits.tolist()
    assert ProofPoly.from_points(x.tolist(), bits.tolist()) == proof


def test_float32_points_are_refused():
    with pytest.raises(MalformedProof, match="float32"):
        ProofPoly.from_points_tensor(torch.arange(3), torch.ones(3))


def test_points_that_cannot_be_interpolated():
    with pytest.raises(NoInjectiveModulus):
        ProofPoly.from_points([1, 1], [2, 3])
    with pytest.raises(MalformedProof, match="same number"):
        ProofPoly.from_points([1, 2], [3])
    with pytest.raises(MalformedProof, match="at least one"):
        ProofPoly.from_points([], [])


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd9\x00", "ffd9"])
def test_bytes_that_are_no_proof(data):
    with pytest.raises(MalformedProof):
        ProofPoly.from_bytes(data)


@pytest.mark.parametrize(
    "text",
    ["", "/9kbQitnukt1bQ", "/9kbQitnukt1bQ==\n", "/9kbQitn*ukt1bQ==", "/9kbQitnukt1bR==", "é"],
)
def test_text_that_is_no_base64_of_a_proof(text):
    with pytest.raises(MalformedProof):
        ProofPoly.from_base64(text)


@pytest.mark.parametrize(
    ("coefficients", "modulus", "fault"),
    [([], 65497, "no coefficients"), ([1], 65498, "modulus"), ([1, 65497], 65497, "coefficient"),
     ([1], 0, "modulus")],
)  # fmt: skip
def test_faults_are_named(coefficients, modulus, fault):
    assert fault in ProofPoly(coefficients, modulus).faults()[0]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_parse_or_are_refused(data):
    try:
        proof = ProofPoly.from_bytes(data)
    except ToplocError:
        assert len(data) < 2 or len(data) % 2
    else:
        assert proof.to_bytes() == data


@settings(max_examples=200, deadline=None)
@given(st.text("/9kbQitnu+=A- \né", max_size=24))
def test_any_text_parses_or_is_refused(text):
    try:
        assert ProofPoly.from_base64(text).to_base64() == text
    except MalformedProof:
        pass


def test_find_injective_modulus():
    assert find_injective_modulus([0, 1, 2]) == 65497
    assert find_injective_modulus([0, 65497]) == 65496
    with pytest.raises(NoInjectiveModulus):
        find_injective_modulus([3, 3])


def test_sha256sum(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 100_000)
    assert (
        sha256sum(path) == sha256sum(str(path), 7) == hashlib.sha256(b"abc" * 100_000).hexdigest()
    )
