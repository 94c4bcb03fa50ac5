import logging
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toploc import (
    ProofPoly,
    VerificationResult,
    build_proofs,
    build_proofs_base64,
    build_proofs_bytes,
    prove,
    verify_proofs,
    verify_proofs_base64,
    verify_proofs_bytes,
)
from toploc.build import prove_all
from toploc.errors import MalformedProof, ProofCountMismatch, ToplocError, UnprovableActivations


def figures(result: VerificationResult) -> tuple[float, ...]:
    return result.exp_mismatches, result.mant_err_mean, result.mant_err_median


def test_list_and_tensor_give_the_same(hidden):
    rows = list(hidden)
    for skip in (True, False):
        proofs = build_proofs(hidden, 32, 128, skip)
        assert proofs == build_proofs(rows, 32, 128, skip)
        assert len(proofs) == (3 if skip else 4)
        assert [figures(r) for r in verify_proofs(rows, proofs, 32, 128, skip)] == [
            (0, 0, 0)
        ] * len(proofs)


def test_prefill_is_one_chunk_and_decode_steps_may_differ_in_length(hidden):
    activations = [hidden[:40], *hidden[40:50, :200], hidden[50]]
    proofs = build_proofs(activations, 4, 64)
    assert len(proofs) == 4
    assert all(figures(r) == (0, 0, 0) for r in verify_proofs(activations, proofs, 4, 64))


def test_all_forms_of_a_proof_agree(hidden):
    proofs = build_proofs(hidden, 32, 128, True)
    as_bytes = build_proofs_bytes(hidden, 32, 128, True)
    as_text = build_proofs_base64(hidden, 32, 128, True)
    assert [p.to_bytes() for p in proofs] == as_bytes
    assert [p.to_base64() for p in proofs] == as_text
    assert prove(hidden) == b"".join(as_bytes)
    assert {len(p) for p in as_bytes} == {258} and {len(p) for p in as_text} == {344}
    other = hidden * 1.01
    results = verify_proofs(other, proofs, 32, 128, True)
    assert results == verify_proofs_bytes(other, as_bytes, 32, 128, True)
    assert results == verify_proofs_base64(other, as_text, 32, 128, True)
    assert repr(results[0]).startswith("VerificationResult[exp_mismatches=")


def test_a_row_does_not_depend_on_the_others(hidden):
    assert prove(hidden) == prove(hidden[:32]) + prove(hidden[32:64]) + prove(hidden[64:])


def test_indices_are_reduced_by_a_modulus_below_the_prime():
    row = torch.zeros(1, 140_000)
    row[0, [1, 1 + 65497, 5, 9]] = torch.tensor([9.0, 8.0, 7.0, 6.0])
    row = row.bfloat16()
    proofs = build_proofs(row, 1, 4, True)
    assert proofs[0].modulus == 65496
    for activations in (row, [row[0]]):
        assert figures(verify_proofs(activations, proofs, 1, 4, True)[0]) == (0, 0, 0)


def test_nothing_matches_gives_the_sentinel(hidden):
    proofs = build_proofs(hidden, 32, 128, True)
    results = verify_proofs(hidden * 4, proofs, 32, 128, True)
    assert figures(results[0])[1:] == (2.0**64, 2.0**64) or results[0].exp_mismatches > 100


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda h: h.float(), "float32"),
        (lambda h: h[:1, :100], "fewer than topk=128"),
        (lambda h: torch.where(h == h.amax(), torch.nan, h), "NaN"),
        (lambda h: torch.where(h == h.amin(), -torch.inf, h), "NaN or infinity"),
        (lambda h: h[:0], "at least one row"),
    ],
)
def test_unprovable_activations(hidden, make, reason, caplog):
    bad = make(hidden)
    with pytest.raises(UnprovableActivations, match=reason):
        prove(bad)
    if len(bad):
        with caplog.at_level(logging.ERROR):
            proofs = build_proofs(bad, 32, 128, skip_prefill=True)
        assert proofs == [ProofPoly.null(128)] * (1 + (len(bad) - 1 + 32) // 32)
        assert "Error building proofs" in caplog.text
        with pytest.raises(ToplocError):
            verify_proofs(bad, proofs, 32, 128, True)


def test_nan_activations_do_not_verify(hidden):
    proofs = build_proofs(hidden, 32, 128, True)
    hidden[50, 3] = torch.nan
    with pytest.raises(UnprovableActivations):
        verify_proofs(hidden, proofs, 32, 128, True)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_one_proof_per_chunk(hidden, count):
    proofs = (build_proofs(hidden, 32, 128, True) * 2)[:count]
    with pytest.raises(ProofCountMismatch, match=f"{count} proofs for 3 chunks"):
        verify_proofs(hidden, proofs, 32, 128, True)


@pytest.mark.parametrize("empty", [[], torch.empty(0, 256, dtype=torch.bfloat16)])
@pytest.mark.parametrize("skip", [True, False])
def test_nothing_is_not_verified(empty, skip):
    assert build_proofs([], 32, 128, skip) in ([], [ProofPoly.null(128)])
    with pytest.raises(ProofCountMismatch):
        verify_proofs(empty, [], 32, 128, skip)


@pytest.mark.parametrize(
    "bad", [ProofPoly.null(128), ProofPoly([], 65497), ProofPoly([1] * 128, 65498),
            ProofPoly([65500] * 128, 65497)],
)  # fmt: skip
def test_unusable_proofs_are_refused(hidden, bad):
    proofs = build_proofs(hidden, 32, 128, True)
    proofs[1] = bad
    with pytest.raises(MalformedProof, match="proof 1 is unusable"):
        verify_proofs(hidden, proofs, 32, 128, True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=4), st.integers(1, 64))
def test_any_proof_bytes_give_figures_or_an_error(proofs, topk):
    activations = torch.linspace(-3, 3, 3 * 64).bfloat16().reshape(3, 64)
    try:
        results = verify_proofs_bytes(activations, proofs, 2, topk, skip_prefill=True)
    except ToplocError:
        return
    assert len(results) == len(proofs) == 2
    assert all(0 <= r.exp_mismatches <= topk for r in results)


def test_speed_of_a_thousand_rows():
    """The PyPI package took 190 and 59 ms on two idle cores; a busy machine gets some room."""
    activations = torch.randn(1000, 5120, generator=torch.Generator().manual_seed(0)).bfloat16()
    proofs = build_proofs_bytes(activations, 32, 128, True)
    building, verifying = [], []
    for _ in range(3):
        start = time.process_time()
        build_proofs_bytes(activations, 32, 128, True)
        building.append(time.process_time() - start)
        start = time.process_time()
        verify_proofs_bytes(activations, proofs, 32, 128, True)
        verifying.append(time.process_time() - start)
    assert len(proofs) == 32
    assert min(building) < 0.15
    assert min(verifying) < 0.1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_same_proofs_and_figures(hidden):
    proofs = build_proofs(hidden, 32, 128)
    assert build_proofs(hidden.cuda(), 32, 128) == proofs
    assert build_proofs([row.cuda() for row in hidden], 32, 128) == proofs
    other = hidden * 1.01
    assert verify_proofs(other.cuda(), proofs, 32, 128) == verify_proofs(other, proofs, 32, 128)


def test_texts_proved_together_have_the_proofs_of_each_alone(hidden):
    texts = [hidden[:rows] for rows in (1, 80, 32, 5, 33, 80, 1)]
    assert prove_all(texts) == [prove(text) for text in texts]
    with pytest.raises(UnprovableActivations, match="at least one row"):
        prove_all([hidden, hidden[:0]])
