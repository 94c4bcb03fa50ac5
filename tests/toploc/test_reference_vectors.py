"""Byte-identical proofs and equal statistics, ties at the k-th value apart.

Where values tie at the k-th place, the reference took some of the equals and we take those with
the lowest indices. Then the proofs differ, and a figure may differ by what the tied elements
contribute.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from toploc import ProofPoly, build_proofs_bytes, verify_proofs_bytes
from toploc.poly import batch_activations
from toploc.proof import bit_patterns, words_from_points


def tied(chunk: Tensor, k: int) -> int:
    """How many values tie with the k-th largest magnitude beyond those that have to be chosen."""
    magnitudes = chunk.float().abs()
    kth = magnitudes.topk(k).values[-1]
    equal = int((magnitudes == kth).sum())
    chosen = k - int((magnitudes > kth).sum())
    return 0 if equal == chosen else min(chosen, equal - chosen)


def test_chunks_without_ties_give_the_same_bytes(handed):
    compared = 0
    for case in handed:
        ours = build_proofs_bytes(case.activations, case.batching, case.topk, skip_prefill=True)
        chunks = batch_activations(case.activations, case.batching, skip_prefill=True)
        assert len(ours) == len(case.proofs) == len(chunks)
        for mine, reference, chunk in zip(ours, case.proofs, chunks, strict=True):
            if not tied(chunk, case.topk):
                assert mine == reference
                compared += 1
    assert compared >= 20


def test_the_references_choice_among_equals_gives_its_bytes(handed):
    """With the indices that torch.topk chooses all bytes are the same, where it chooses as then."""
    same = total = 0
    for case in handed:
        chunks = batch_activations(case.activations, case.batching, skip_prefill=True)
        for reference, chunk in zip(case.proofs, chunks, strict=True):
            indices = chunk.abs().topk(case.topk).indices
            points = indices.numpy()[None], bit_patterns(chunk[indices]).numpy()[None]
            mine = words_from_points(*points).tobytes()
            total += 1
            same += mine == reference
            assert mine == reference or tied(chunk, case.topk)
    assert same >= total - 5


def test_a_modulus_below_the_prime_occurs(handed):
    moduli = {ProofPoly.from_bytes(p).modulus for case in handed for p in case.proofs}
    assert moduli - {65497}


def test_statistics_equal_the_references(handed):
    exact = 0
    for case in handed:
        for factor, expected in zip(case.factors, case.stats, strict=True):
            other = (case.activations.float() * factor).bfloat16()
            results = verify_proofs_bytes(other, case.proofs, case.batching, case.topk, True)
            chunks = batch_activations(other, case.batching, skip_prefill=True)
            for result, figures, chunk in zip(results, expected, chunks, strict=True):
                ours = [result.exp_mismatches, result.mant_err_mean, result.mant_err_median]
                if ties := tied(chunk, case.topk):
                    assert abs(ours[0] - figures[0]) <= ties
                    matched = max(case.topk - max(ours[0], figures[0]), 1)
                    if max(ours[1], figures[1]) < 2.0**64:
                        assert abs(ours[1] - figures[1]) <= 128 * ties / matched
                else:
                    assert ours == figures
                    exact += 1
    assert exact >= 60


def test_own_proofs_of_reference_activations_verify_as_zero(handed):
    for case in handed:
        proofs = build_proofs_bytes(case.activations, case.batching, case.topk, True)
        for result in verify_proofs_bytes(case.activations, proofs, case.batching, case.topk, True):
            assert (result.exp_mismatches, result.mant_err_mean, result.mant_err_median) == (
                0,
                0,
                0,
            )


def old_randn(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    """torch.randn(shape, dtype=bfloat16) as torch up to 2.7 drew it on a CPU, one draw per shape.

    Blocks of 16 uniforms of 8 bits each go through the Box-Muller transform, and every intermediate
    is rounded to bfloat16.
    """
    source = np.random.Generator(np.random.MT19937())
    source.bit_generator._legacy_seeding(seed)

    def draw(shape: tuple[int, ...]) -> Tensor:
        size = int(np.prod(shape))
        raw = source.bit_generator.random_raw(size).astype(np.int64)
        uniform = torch.from_numpy((raw & 0xFF) / 256.0).bfloat16().reshape(-1, 16)
        first, second = 1 - uniform[:, :8], uniform[:, 8:]
        radius = torch.sqrt(-2 * torch.log(first))
        angle = second * (2 * np.pi)
        return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], 1).reshape(shape)

    return [draw(shape) for shape in shapes]


@pytest.fixture
def golden_activations() -> list[Tensor]:
    return old_randn(42, (5, 16), *[(16,)] * 10)


GOLDEN = ["/9kbQitnukt1bQ==", "/9nLuJrxhiVUoA==", "/9m0aNrm5KtBtg==", "/9mAZNZYMOKvcw==",
          "/9nSBGTqkZH21w=="]  # fmt: skip


def test_golden_vector_of_the_readme(golden_activations):
    from toploc import build_proofs_base64, verify_proofs_base64

    assert build_proofs_base64(golden_activations, 3, 4) == GOLDEN
    jittered = [a * 1.01 for a in golden_activations]
    for result in verify_proofs_base64(jittered, GOLDEN, 3, 4):
        assert result.exp_mismatches == 0
        assert result.mant_err_mean <= 2
        assert result.mant_err_median <= 2


def test_golden_vector_of_32_decode_steps():
    rows = torch.cat(old_randn(69, *[(1, 1024)] * 32))
    # Eight-bit uniforms tie a lot; the published bytes follow torch.topk's choice among equals.
    indices = rows.flatten().abs().topk(128).indices
    values = bit_patterns(rows.flatten()[indices])
    proof = words_from_points(indices.numpy()[None], values.numpy()[None]).tobytes()
    assert len(proof) == 258
    assert proof[:17].hex() == "ffd9ee88863 2ebe2fd8c68c26f95efdd7b".replace(" ", "")
    assert proof[-8:].hex() == "141a856b00dba1d1"
    ours = build_proofs_bytes(rows, 32, 128, skip_prefill=True)
    assert len(ours) == 1
    ties = tied(rows.flatten(), 128)
    (result,) = verify_proofs_bytes(rows, [proof], 32, 128, skip_prefill=True)
    assert result.exp_mismatches <= ties
