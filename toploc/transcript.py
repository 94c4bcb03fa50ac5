"""One trace as one hash: what a proof belongs to.

A node signs the hash of everything that it answers for: which model made which tokens from which
prompt, with which parameters and seed, who it is, and the proofs, each chunk at its place. A proof
that is copied to another trace, moved, or kept while tokens change is then a proof of nothing.

Invariants of `digest`: SHA-256 over a domain and typed values, each with its type and its length
before it, integers and floats big-endian: two different lists of values never give the same bytes.
The text of sampling parameters is hashed as it is; both sides hold the canonical one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from toploc.signing import SigningKey, verify

Value: TypeAlias = "int | str | bytes | npt.NDArray[np.generic] | Sequence[bytes] | None"

_DOMAIN = b"toploc/v2/"


def digest(domain: str, *values: Value) -> bytes:
    """32 bytes that stand for these values in this domain and for nothing else."""
    encoded = [_DOMAIN, _encode(domain), *(_encode(value) for value in values)]
    return hashlib.sha256(b"".join(encoded)).digest()


def _encode(value: Value) -> bytes:
    match value:
        case None:
            return b"n"
        case int():
            return b"i" + value.to_bytes(8, "big", signed=True)
        case str():
            text = value.encode("utf-8", "surrogatepass")
            return b"s" + len(text).to_bytes(8, "big") + text
        case bytes():
            return b"b" + len(value).to_bytes(8, "big") + value
        case np.ndarray():
            big = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder(">"))
            return b"a" + _encode(big.dtype.str) + _encode(big.tobytes())
    return b"l" + len(value).to_bytes(8, "big") + b"".join(_encode(part) for part in value)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a node answers for in one trace. Names are those of the columns of a trace."""

    trace_id: str
    model_revision: str
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    sampling: str
    """Canonical JSON of the sampling parameters."""
    seed: int
    status: str
    finish_reason: str
    logprobs: Sequence[float]
    """Hashed as float32, one per output token."""
    proofs: bytes
    """Concatenated proofs, in the order of the chunks."""
    engine: str
    """What the node says that it computed with."""
    node_id: str
    group_id: str | None = None
    stage_proofs: Sequence[bytes] | None = None
    """Encoded stage records of a group, the signer's own last; None for a node by itself."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Transcript":
        """The transcript of a row of a traces table."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    def digest(self) -> bytes:
        """The transcript hash."""
        return digest(
            "transcript",
            self.trace_id,
            self.model_revision,
            np.asarray(self.prompt_ids, dtype=np.int64),
            np.asarray(self.output_ids, dtype=np.int64),
            self.sampling,
            self.seed,
            self.status,
            self.finish_reason,
            np.asarray(self.logprobs, dtype=np.float32),
            self.proofs,
            self.engine,
            self.node_id,
            self.group_id,
            self.stage_proofs,
        )

    def sign(self, key: SigningKey) -> tuple[bytes, bytes]:
        """Transcript hash and signature."""
        if key.node_id != self.node_id:
            raise ValueError(
                f"the transcript of {self.trace_id} names node {self.node_id}, the key is that of "
                f"{key.node_id}; a node signs only what it made itself"
            )
        hashed = self.digest()
        return hashed, key.sign(hashed)

    def faults(self, transcript_hash: bytes | None, signature: bytes | None) -> list[str]:
        """Why this is not what its node signed, as "code: what was found"; empty if it is."""
        if transcript_hash is None or signature is None:
            return ["unsigned: the trace has no transcript hash or no signature"]
        if transcript_hash != self.digest():
            return ["transcript_mismatch: the trace is not the one whose hash was signed"]
        if not verify(self.node_id, transcript_hash, signature):
            return [f"bad_signature: node {self.node_id[:64]} did not sign this transcript"]
        return []
