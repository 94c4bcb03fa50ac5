import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toploc import ProofPoly, build_proofs, prove
from toploc.errors import UnprovableActivations
from toploc.field import P
from toploc.verdict import Limits, examine_all, examine_proofs, judge_examined, judge_proofs

LOOSE = Limits(60, 40.0, 40.0)


def join(proofs: list[ProofPoly]) -> bytes:
    return b"".join(p.to_bytes() for p in proofs)


def codes(verdict) -> set[str]:
    return {reason.split(":")[0] for reason in verdict.reasons}


def test_honest_proofs_are_accepted(hidden):
    verdict = judge_proofs(hidden, prove(hidden))
    assert verdict.accepted and verdict.reasons == ()
    assert verdict.figures["exp_mismatches_max"] == 0
    assert verdict.figures["overlap_min"] == 128
    assert verdict.figures["chunks"] == 3
    assert all(type(v) in (int, float) for v in verdict.figures.values())


def test_rounding_noise_is_accepted_and_other_work_is_not(hidden):
    proofs = prove(hidden)
    noise = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(5))
    assert judge_proofs((hidden.float() * (1 + 0.004 * noise)).bfloat16(), proofs).accepted
    other = judge_proofs(hidden.roll(1, 0), proofs)
    assert not other.accepted
    assert codes(other) >= {"exp_mismatches"}
    assert not judge_proofs((hidden.float() * (1 + 0.2 * noise)).bfloat16(), proofs).accepted


def test_one_chunk_of_many_is_enough_to_refuse(hidden):
    proofs = build_proofs(hidden, 32, 128, True)
    proofs[2] = proofs[1]
    verdict = judge_proofs(hidden, join(proofs))
    assert not verdict.accepted
    assert all("chunk 2" in reason for reason in verdict.reasons)


def test_texts_looked_at_together_are_judged_as_each_alone(hidden):
    """Of several lengths, with all kinds of faults among them: each as if it were by itself."""
    generator = torch.Generator().manual_seed(8)
    lengths = (1, 32, 80, 33, 300, 5, 64, 96, 128, 31, 2, 80)
    states = [torch.randn(n, 256, generator=generator).bfloat16() for n in lengths]
    proofs = [prove(own) for own in states]
    proofs[1], proofs[3] = b"", bytes(len(proofs[3]))
    proofs[5] = (2).to_bytes(2, "big") + proofs[5][2:]
    proofs[6] = proofs[6][:258] * 2
    proofs[7] = proofs[7][:300] + bytes(20) + proofs[7][320:]
    proofs[8] = proofs[8][:158] + bytes(100) + proofs[8][258:]
    states[9] = states[9] * 1.01
    texts = [*zip(states, proofs, strict=True), (hidden[:0], b""), (hidden, prove(hidden.roll(1)))]
    kinds = set()
    for (own, proof), found in zip(texts, examine_all(texts), strict=True):
        alone = examine_proofs(own, proof)
        assert (found.faults, found.figures) == (alone.faults, alone.figures)
        assert found.rows.tolist() == alone.rows.tolist()
        assert judge_examined(found, Limits()) == judge_proofs(own, proof)
        kinds |= {fault.partition(":")[0] for fault in found.faults}
    assert kinds == {
        "no_rows", "proof_length", "proof_modulus", "replayed", "trivial_degree", "trivial_zeros",
    }  # fmt: skip


def test_the_sign_counts(hidden):
    assert "exp_mismatches" in codes(judge_proofs(hidden, prove(-hidden)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: b"",
        lambda p: p[:-1],
        lambda p: p[:-258],
        lambda p: p + p[:258],
        lambda p: p + b"\0\0",
        lambda p: bytes(len(p)),
        lambda p: bytearray(p),
        lambda p: None,
        lambda p: p.hex(),
        lambda p: b"\xff\xda" + p[2:],
        lambda p: p[:2] + b"\xff\xff" + p[4:],
        lambda p: b"\x00\x00" + p[2:],
        lambda p: b"\x00\x01" + p[2:],
        lambda p: b"\x80\x01" + p[2:],
        lambda p: p[258:516] + p[:258] + p[516:],
    ],
)
def test_damaged_proofs_are_refused(hidden, damage):
    verdict = judge_proofs(hidden, damage(prove(hidden)))
    assert not verdict.accepted and verdict.reasons


def test_null_proofs_are_named(hidden):
    null = join([ProofPoly.null(128)] * 3)
    assert "null proof" in judge_proofs(hidden, null).reasons[0]


@pytest.mark.parametrize("degree", [0, 1, 24, 120])
def test_low_degrees_are_refused_whatever_the_limits(hidden, degree):
    common = int(hidden.flatten().abs().topk(64).values[-1].view(torch.int16)) & 0xFFFF
    forged = ProofPoly([common] + [0] * (degree - 1) + [7] * (degree > 0) + [0] * (127 - degree), P)
    verdict = judge_proofs(hidden, join([forged] * 3), Limits(128, 2.0**65, 2.0**65))
    assert not verdict.accepted
    assert codes(verdict) <= {"trivial_degree", "trivial_zeros", "replayed"}


def test_a_constant_in_disguise_is_refused(hidden):
    common = int(hidden.flatten().abs().topk(64).values[-1].view(torch.int16)) & 0xFFFF
    sparse = ProofPoly([common] + [0] * 126 + [1], P)
    assert "trivial_zeros" in codes(judge_proofs(hidden, join([sparse] * 3), LOOSE))


def test_a_tiny_modulus_is_refused(hidden):
    """All indices land on few arguments, where a dense polynomial may well take a common value."""
    common = int(hidden.flatten().abs().topk(64).values[-1].view(torch.int16)) & 0xFFFF
    random = np.random.default_rng(0)
    dense = ProofPoly([common, *random.integers(1, P, 127).tolist()], 1)
    assert dense(0) == common
    assert "proof_modulus" in codes(judge_proofs(hidden, join([dense] * 3), LOOSE))
    free = Limits(128, 2.0**65, 2.0**65)
    assert "proof_modulus" in codes(judge_proofs(hidden, join([dense] * 3), free))


def test_random_dense_polynomials_are_refused(hidden):
    random = np.random.default_rng(1)
    proofs = [ProofPoly(random.integers(1, P, 128).tolist(), P) for _ in range(3)]
    assert codes(judge_proofs(hidden, join(proofs), LOOSE)) >= {"exp_mismatches"}


@pytest.mark.parametrize(
    "make",
    [
        lambda h: h.float(),
        lambda h: h.half(),
        lambda h: h[0],
        lambda h: torch.where(h == h.amax(), torch.nan, h),
        lambda h: torch.where(h == h.amax(), torch.inf, h),
    ],
)
def test_unusable_states_of_the_verifier_are_no_fault_of_the_proofs(hidden, make):
    with pytest.raises(UnprovableActivations):
        judge_proofs(make(hidden), prove(hidden))


def test_nothing_proves_nothing(hidden):
    assert codes(judge_proofs(hidden[:0], prove(hidden))) == {"no_rows"}


def test_a_chunk_shorter_than_k_cannot_be_judged():
    with pytest.raises(UnprovableActivations, match="fewer than topk"):
        judge_proofs(torch.randn(1, 64).bfloat16(), bytes(range(1, 255)) + b"\1\2\3\4")


def test_other_chunk_sizes(hidden):
    proofs = prove(hidden, topk=64, decode_batching_size=16)
    assert judge_proofs(hidden, proofs, topk=64, decode_batching_size=16).accepted
    assert not judge_proofs(hidden, proofs).accepted
    assert codes(judge_proofs(hidden, proofs, topk=8)) == {"settings"}
    assert codes(judge_proofs(hidden, proofs, decode_batching_size=0)) == {"settings"}


HONEST = torch.linspace(-9, 9, 33 * 64).bfloat16().reshape(33, 64)


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=516, max_size=516) | st.binary(max_size=600))
def test_no_random_bytes_are_accepted(proofs):
    verdict = judge_proofs(HONEST[:, :].repeat(1, 2), proofs)
    assert not verdict.accepted and verdict.reasons


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 515), st.integers(1, 255))
def test_one_changed_byte_is_noticed(place, change):
    """But for the last byte of the constant coefficient: it shifts all values a little."""
    activations = HONEST.repeat(1, 2)
    proofs = bytearray(prove(activations))
    proofs[place] ^= change
    if place % 258 != 3:
        assert not judge_proofs(activations, bytes(proofs)).accepted
