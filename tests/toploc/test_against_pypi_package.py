"""A thousand random tensors against PyPI toploc 0.1.6, built from its source, in a process apart.

Proofs are byte-identical and the statistics equal. Where values tie at the k-th place the package
took some of the equals and we take those with the lowest indices: then our polynomial through the
package's choice has its bytes, and statistics differ by the number of tied elements and no more.
"""

import inspect
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

import toploc
from tests.bench.peers import PeerUnavailable
from tests.bench.toploc_peer import PeerDied, ToplocPeer
from toploc import ProofPoly, build_proofs_bytes, verify_proofs_bytes
from toploc.build import batch_activations
from toploc.proof import bit_patterns, words_from_points
from toploc.verify import NO_MATCH, compare, exponents

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TENSORS = 1000


@pytest.fixture(scope="module")
def peer():
    try:
        process = ToplocPeer()
    except PeerUnavailable as error:
        pytest.skip(f"the PyPI package cannot be built here: {error}")
    yield process
    process.close()


def draw(random: np.random.Generator, number: int) -> tuple[Tensor, int, int]:
    """Activations, topk and rows per proof; every other tensor has no ties among its largest."""
    if number % 8:
        hidden, rows = int(2 ** random.uniform(6, 13)), int(random.integers(1, 33))
        k = int(random.integers(1, min(256, rows * hidden) + 1))
    else:  # so many indices beyond the prime that some clash modulo it
        hidden, rows, k = int(random.integers(6000, 8193)), 32, 256
    values = random.standard_normal((rows, hidden))
    if number % 3 == 0:
        values *= random.random(hidden) ** 6 * 30 + 0.3
    dtype = torch.float16 if number % 4 >= 2 else torch.bfloat16
    activations = torch.from_numpy(values).to(dtype)
    if number % 2:
        places = torch.from_numpy(random.permutation(rows * hidden)[: min(2 * k, rows * hidden)])
        top = int(activations.abs().max().view(torch.int16)) + 1
        bits = torch.arange(top, top + len(places), dtype=torch.int16)
        sign = torch.from_numpy(random.integers(0, 2, len(places)).astype(np.int16)) << 15
        activations.view(torch.int16).view(-1)[places] = bits | sign
    batching = rows if number % 5 else int(random.integers(-(-k // hidden), rows + 1))
    if rows % batching and (rows % batching) * hidden < k:
        batching = rows
    return activations, k, batching


def tied(chunk: Tensor, k: int) -> tuple[Tensor, Tensor, int]:
    """Indices above the k-th magnitude, indices equal to it, and how many of those are needed."""
    magnitudes = chunk.view(torch.int16) & 0x7FFF
    kth = magnitudes.topk(k).values[-1]
    above, equal = (magnitudes > kth).nonzero()[:, 0], (magnitudes == kth).nonzero()[:, 0]
    return above, equal, k - len(above)


def ambiguous(chunk: Tensor, k: int) -> int:
    """How many elements may be chosen otherwise."""
    _, equal, needed = tied(chunk, k)
    return min(needed, len(equal) - needed)


def of_the_packages_choice(chunk: Tensor, proof: bytes, k: int) -> bytes:
    """Our proof of the largest values, with those of the equals that the proof passes through."""
    above, equal, _ = tied(chunk, k)
    polynomial = ProofPoly.from_bytes(proof)
    bits = bit_patterns(chunk)
    taken = [i for i in equal.tolist() if polynomial(i % polynomial.modulus) == int(bits[i])]
    indices = torch.cat([above, torch.tensor(taken, dtype=torch.int64)])
    return words_from_points(indices.numpy()[None], bits[indices].numpy()[None]).tobytes()


def sorted_errors(chunk: Tensor, proof: bytes, k: int) -> list[int]:
    """Our differences of mantissas where exponents match, the least first."""
    polynomial = ProofPoly.from_bytes(proof)
    coefficients, modulus = np.array([polynomial.coeffs]), np.array([polynomial.modulus])
    found = compare([chunk.reshape(1, -1)], coefficients, modulus, k)
    same = exponents(found.claimed) == exponents(found.patterns)
    return sorted(np.abs((found.claimed & 0x7F) - (found.patterns & 0x7F))[same].tolist())


def compare_statistics(
    peer: ToplocPeer, other: Tensor, proofs: list[bytes], k: int, batching: int, seen: Counter
) -> None:
    # The package aborts on float16 but reads its bits as bfloat16 anyway: so it is given these.
    theirs, _ = peer.verify(other.view(torch.int16).view(torch.bfloat16), proofs, batching, k)
    ours = verify_proofs_bytes(other, proofs, batching, k, skip_prefill=True)
    chunks = batch_activations(other, batching, skip_prefill=True)
    for chunk, proof, result, figures in zip(chunks, proofs, ours, theirs, strict=True):
        mine = [result.exp_mismatches, result.mant_err_mean, result.mant_err_median]
        if ties := ambiguous(chunk, k):
            assert abs(mine[0] - figures[0]) <= ties
            matched = k - max(mine[0], figures[0])
            if matched > 0:
                assert abs(mine[1] - figures[1]) <= 128 * ties / matched
            if figures[0] < k:
                # With so many elements exchanged, the middle one moves by no more places.
                errors = sorted_errors(chunk, proof, k)
                middle = (k - int(figures[0])) // 2
                least = errors[middle - ties] if middle >= ties else 0
                most = errors[middle + ties] if middle + ties < len(errors) else 127
                assert least <= figures[2] <= most
            else:
                assert figures[1:] == [NO_MATCH, NO_MATCH] and k - mine[0] <= ties
            seen["statistics_tied"] += 1
        else:
            assert mine == figures
            seen["statistics_equal"] += 1
            seen["nothing_matched"] += mine[1] == NO_MATCH


def test_a_thousand_random_tensors(peer):
    random = np.random.default_rng(20_250_410)
    seen: Counter[str] = Counter()
    for number in range(TENSORS):
        activations, k, batching = draw(random, number)
        skip_prefill = number % 7 != 0 or activations.shape[1] < k
        proofs, _ = peer.build(activations, batching, k, skip_prefill)
        ours = build_proofs_bytes(activations, batching, k, skip_prefill)
        chunks = batch_activations(activations, batching, skip_prefill)
        assert len(ours) == len(proofs) == len(chunks)
        for chunk, mine, theirs in zip(chunks, ours, proofs, strict=True):
            seen["modulus_below_the_prime"] += int.from_bytes(theirs[:2]) < 65497
            if ambiguous(chunk, k):
                assert of_the_packages_choice(chunk, theirs, k) == theirs
                seen["bytes_equal_for_its_choice"] += 1
            else:
                assert mine == theirs
                seen["bytes_equal"] += 1
        if skip_prefill:
            noise = torch.from_numpy(random.standard_normal(activations.shape))
            jittered = (activations.double() * (1 + 0.01 * noise)).to(activations.dtype)
            other = torch.from_numpy(random.standard_normal(activations.shape)).to(jittered.dtype)
            for verified in (activations, jittered, other):
                compare_statistics(peer, verified, proofs, k, batching, seen)
    print(dict(seen))
    assert seen["bytes_equal"] >= 500 and seen["statistics_equal"] >= 500
    assert seen["modulus_below_the_prime"] >= 20


def test_the_functions_of_the_package_have_their_parameters(peer):
    for name, parameters in peer.names().items():
        assert list(inspect.signature(getattr(toploc, name)).parameters) == parameters, name


@pytest.mark.parametrize("proof", [b"\0\0" + bytes(8), b"\xff\xd9"], ids=["null", "empty"])
def test_what_kills_the_package_is_an_error_here(peer, proof):
    activations = torch.randn(1, 64).bfloat16()
    with pytest.raises(PeerDied):
        peer.verify(activations, [proof], 1, 4)
    with pytest.raises(toploc.errors.MalformedProof):
        verify_proofs_bytes(activations, [proof], 1, 4, skip_prefill=True)


def test_float16_kills_the_package_and_verifies_here(peer):
    activations = torch.randn(4, 64).half()
    proofs = build_proofs_bytes(activations, 4, 16, skip_prefill=True)
    with pytest.raises(PeerDied):
        peer.verify(activations, proofs, 4, 16)
    (result,) = verify_proofs_bytes(activations, proofs, 4, 16, skip_prefill=True)
    assert result.exp_mismatches == 0
