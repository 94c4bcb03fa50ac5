"""Activation proofs and sampling proofs: was this text made by this model, computed honestly?

The names below are those of the PyPI package `toploc` 0.1.6, with byte-identical proofs. Judgements
are in `toploc.verdict` (activations) and `toploc.sampling` (tokens). Nothing here imports other
packages of this repository.
"""

from toploc.build import build_proofs, build_proofs_base64, build_proofs_bytes, prove
from toploc.proof import ProofPoly
from toploc.utils import sha256sum
from toploc.verify import (
    VerificationResult,
    verify_proofs,
    verify_proofs_base64,
    verify_proofs_bytes,
)

__all__ = [
    "ProofPoly",
    "VerificationResult",
    "build_proofs",
    "build_proofs_base64",
    "build_proofs_bytes",
    "prove",
    "sha256sum",
    "verify_proofs",
    "verify_proofs_base64",
    "verify_proofs_bytes",
]
