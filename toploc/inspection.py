"""What stored proofs say without a model: their numbers, and why no honest builder made them.

An honest polynomial through k points is dense and of full degree, up to odds of 1 in 65497 per
coefficient. One that is sparse or of low degree was written down without computing anything.
"""

from dataclasses import dataclass

import numpy as np

from toploc.errors import MalformedProof
from toploc.field import SMALLEST_MODULUS, Ints
from toploc.proof import WORD, ProofPoly


@dataclass(frozen=True, slots=True)
class ProofFacts:
    """One proof of a concatenation."""

    modulus: int
    degree: int
    """-1 where all coefficients are zero."""
    zero_coefficients: int
    problems: tuple[str, ...]
    """Why no verifier can take it, whatever it computes itself; "code: what was found"."""


def inspect_proofs(proofs: bytes, topk: int = 128) -> list[ProofFacts]:
    """Facts of each of the concatenated proofs; MalformedProof if they are not whole proofs."""
    size = WORD * (1 + topk)
    if len(proofs) % size:
        raise MalformedProof(
            f"{len(proofs)} bytes of proofs; proofs of {topk} values have {size} bytes each, so a "
            "part is missing or too much"
        )
    return [_facts(ProofPoly.from_bytes(proofs[i : i + size])) for i in range(0, len(proofs), size)]


def _facts(proof: ProofPoly) -> ProofFacts:
    coefficients = np.array([proof.coeffs], dtype=np.int64)
    problems = [f"unusable: {fault}" for fault in proof.faults()]
    if not problems and proof.modulus <= SMALLEST_MODULUS:
        problems.append(
            f"proof_modulus: {proof.modulus}; the search of an honest builder ends above "
            f"{SMALLEST_MODULUS}"
        )
    problems += [problem for problem in trivial_shapes(coefficients) if problem]
    return ProofFacts(
        modulus=proof.modulus,
        degree=int(degrees(coefficients)[0]),
        zero_coefficients=proof.coeffs.count(0),
        problems=tuple(problems),
    )


def trivial_shapes(coefficients: Ints) -> list[str]:
    """Per polynomial [chunks, k] why it is trivial by its coefficients alone, or ""."""
    k = coefficients.shape[1]
    zeros = (coefficients == 0).sum(1)
    found = []
    for degree, zero in zip(degrees(coefficients).tolist(), zeros.tolist(), strict=True):
        if degree < k - 3:
            found.append(f"trivial_degree: degree {degree}; honest is {k - 1}")
        elif zero > max(2, k // 16):
            found.append(f"trivial_zeros: {zero} zero coefficients of {k}; honest is none")
        else:
            found.append("")
    return found


def degrees(coefficients: Ints) -> Ints:
    """Degree per polynomial [chunks, k]; -1 for zero."""
    powers = np.arange(coefficients.shape[1])
    highest: Ints = np.where(coefficients != 0, powers, -1).max(1)
    return highest
