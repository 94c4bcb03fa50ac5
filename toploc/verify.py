"""Comparing proofs with the verifier's own activations.

Per chunk the verifier takes its own `topk` largest magnitudes, evaluates the proof at their
indices (reduced by the proof's modulus) and reads the values as 16-bit floats with bf16's masks:
how many exponents differ, and over the others the mean and the upper median of the mantissas'
differences. The sign is not part of the three figures; `Comparison` counts it beside them.

Statistics are not a verdict. Nothing that is not a proof of these chunks gets statistics: a null,
malformed, missing or surplus proof and activations that are not finite raise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from toploc.build import Activations, largest, segments
from toploc.errors import MalformedProof, ProofCountMismatch
from toploc.field import Floats, Ints, P, evaluate
from toploc.proof import ProofPoly, proof_words

NO_MATCH = 2.0**64
"""Mean and median where no exponent matches."""

FAR = 128
"""ULP, one power of two: a value this far away is another value."""


@dataclass(repr=False)
class VerificationResult:
    """Figures of one chunk; each is an error, lower is better."""

    exp_mismatches: int
    mant_err_mean: float
    mant_err_median: float

    def __repr__(self) -> str:
        return (
            f"VerificationResult[exp_mismatches={self.exp_mismatches}, "
            f"mant_err_mean={self.mant_err_mean}, mant_err_median={self.mant_err_median}]"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of many chunks: arrays [chunks], and what they were taken from [chunks, topk]."""

    exp_mismatches: Ints
    sign_mismatches: Ints
    """Values whose exponent matches and whose sign does not."""
    mant_err_mean: Floats
    mant_err_median: Floats
    indices: Ints
    patterns: Ints
    claimed: Ints
    """What the proofs say where the verifier has `patterns`."""

    def overlaps(self) -> Ints:
        """How many of the verifier's largest values the prover has among its own [chunks].

        At another index a proof takes any of the 65497 values: that one is near is 0.4 % likely.
        """
        near = np.abs(ordered(self.claimed) - ordered(self.patterns)) < FAR
        count: Ints = near.sum(1)
        return count

    def of(self, chunks: slice) -> "Comparison":
        """The same of some chunks alone."""
        return Comparison(*(getattr(self, field.name)[chunks] for field in fields(self)))

    def results(self) -> list[VerificationResult]:
        """One result per chunk."""
        return [
            VerificationResult(*figures)
            for figures in zip(
                self.exp_mismatches.tolist(),
                self.mant_err_mean.tolist(),
                self.mant_err_median.tolist(),
                strict=True,
            )
        ]


def compare(parts: list[Tensor], coefficients: Ints, moduli: Ints, topk: int) -> Comparison:
    """Compare the chunks of `parts` with usable proofs: [chunks, k] and [chunks]."""
    indices, patterns = largest(parts, topk)
    claimed = evaluate(coefficients, indices % moduli[:, None])
    same = exponents(claimed) == exponents(patterns)
    count = same.sum(1)
    errors = np.abs((claimed & 0x7F) - (patterns & 0x7F))
    total = np.where(same, errors, 0).sum(1)
    # Values left out sort behind all others, so position count // 2 is the upper median.
    ordered = np.sort(np.where(same, errors, 0x80), axis=1)
    middle = ordered[np.arange(len(ordered)), np.minimum(count // 2, topk - 1)]
    some = count > 0
    return Comparison(
        exp_mismatches=topk - count,
        sign_mismatches=(same & (((claimed ^ patterns) & 0x8000) != 0)).sum(1),
        mant_err_mean=np.where(some, total / np.maximum(count, 1), NO_MATCH),
        mant_err_median=np.where(some, middle, NO_MATCH).astype(np.float64),
        indices=indices,
        patterns=patterns,
        claimed=claimed,
    )


def exponents(patterns: Ints) -> npt.NDArray[np.int64]:
    """The eight exponent bits of bf16 patterns."""
    return (patterns >> 7) & 0xFF


def ordered(patterns: Ints) -> npt.NDArray[np.int64]:
    """Sign and magnitude as one ordered integer; neighbouring floats differ by one."""
    magnitude = patterns & 0x7FFF
    return np.where(patterns & 0x8000, -magnitude, magnitude)


@torch.no_grad()
def verify_proofs(
    activations: Activations,
    proofs: Sequence[ProofPoly],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
) -> list[VerificationResult]:
    """Figures per chunk; raises for proofs that are not one usable proof per chunk."""
    forms = [proof.to_bytes() for proof in proofs]
    return verify_proofs_bytes(activations, forms, decode_batching_size, topk, skip_prefill)


@torch.no_grad()
def verify_proofs_bytes(
    activations: Activations,
    proofs: Sequence[bytes],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
) -> list[VerificationResult]:
    """As `verify_proofs`, from bytes."""
    parts = segments(activations, decode_batching_size, skip_prefill)
    chunks = sum(len(part) for part in parts)
    if len(proofs) != chunks or chunks == 0:
        raise ProofCountMismatch(
            f"{len(proofs)} proofs for {chunks} chunks of activations; exactly one per chunk, and "
            "at least one, can be verified"
        )
    words = [proof_words(proof) for proof in proofs]
    for number, own in enumerate(words):
        if not 1 <= own[0] <= P or not 1 < len(own) <= 1 + P or own[1:].max() >= P:
            faults = "; ".join(ProofPoly(own[1:].tolist(), int(own[0])).faults())
            raise MalformedProof(f"proof {number} is unusable: {faults}")
    coefficients = np.zeros((chunks, max(map(len, words)) - 1), dtype=np.int64)
    for row, own in zip(coefficients, words, strict=True):
        row[: len(own) - 1] = own[1:]
    moduli = np.array([own[0] for own in words], dtype=np.int64)
    return compare(parts, coefficients, moduli, topk).results()


def verify_proofs_base64(
    activations: Activations,
    proofs: Sequence[str],
    decode_batching_size: int,
    topk: int,
    skip_prefill: bool = False,
) -> list[VerificationResult]:
    """As `verify_proofs`, from base64 text."""
    parsed = [ProofPoly.from_base64(proof) for proof in proofs]
    return verify_proofs(activations, parsed, decode_batching_size, topk, skip_prefill)
