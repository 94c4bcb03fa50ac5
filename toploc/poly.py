"""The names of the PyPI package's module `toploc.poly`."""

from toploc.build import batch_activations, build_proofs, build_proofs_base64, build_proofs_bytes
from toploc.proof import ProofPoly, find_injective_modulus
from toploc.verify import (
    VerificationResult,
    verify_proofs,
    verify_proofs_base64,
    verify_proofs_bytes,
)

__all__ = [
    "ProofPoly",
    "VerificationResult",
    "batch_activations",
    "build_proofs",
    "build_proofs_base64",
    "build_proofs_bytes",
    "find_injective_modulus",
    "verify_proofs",
    "verify_proofs_base64",
    "verify_proofs_bytes",
]
