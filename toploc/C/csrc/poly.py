"""The names of the PyPI package's module `toploc.C.csrc.poly`."""

from toploc.proof import ProofPoly
from toploc.verify import (
    VerificationResult,
    verify_proofs,
    verify_proofs_base64,
    verify_proofs_bytes,
)

__all__ = [
    "ProofPoly",
    "VerificationResult",
    "verify_proofs",
    "verify_proofs_base64",
    "verify_proofs_bytes",
]
