"""Activation proofs and sampling proofs: was this text made by this model, computed honestly?

The names below are those of the PyPI package `toploc` 0.1.6, with byte-identical proofs. Judgements
are in `toploc.verdict` (activations) and `toploc.sampling` (tokens). Nothing here imports other
packages of this repository. The names are loaded at their first use: they need torch, signatures
and transcripts do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOME = {
    "ProofPoly": "proof",
    "VerificationResult": "verify",
    "build_proofs": "build",
    "build_proofs_base64": "build",
    "build_proofs_bytes": "build",
    "prove": "build",
    "sha256sum": "utils",
    "verify_proofs": "verify",
    "verify_proofs_base64": "verify",
    "verify_proofs_bytes": "verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toploc.{_HOME[name]}"), name)
