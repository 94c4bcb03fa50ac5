"""One proof: a polynomial over GF(65497) and the modulus that maps indices to its argument.

Bytes: big-endian uint16 modulus, then the coefficients as big-endian uint16, ascending powers.
The null proof (modulus 0, zero coefficients) says that building failed; it can be stored and
parsed, and no verifier accepts it. Parsing refuses what is not the encoding of some proof;
whether the numbers make sense is for `ProofPoly.faults`, which every verifier asks.
"""

import base64
import binascii
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from toploc.errors import MalformedProof
from toploc.field import Ints, P, injective_moduli, interpolate

WORD = 2
_LARGEST_WORD = 0xFFFF

Words = npt.NDArray[np.uint16]
"""Modulus and coefficients, big-endian."""


@dataclass(repr=False)
class ProofPoly:
    """Polynomial with `coeffs` (ascending powers); indices are taken modulo `modulus`."""

    coeffs: list[int]
    modulus: int

    def __post_init__(self) -> None:
        self.coeffs = list(map(index, self.coeffs))
        self.modulus = index(self.modulus)
        for value in (min(self.coeffs, default=0), max(self.coeffs, default=0), self.modulus):
            if not 0 <= value <= _LARGEST_WORD:
                raise MalformedProof(
                    f"{value} does not fit 16 bits; give a modulus and coefficients from 0 to "
                    f"{_LARGEST_WORD}"
                )

    def __call__(self, x: int) -> int:
        """Value at x in GF(65497). Reduce an index by the modulus before asking."""
        value = 0
        for coefficient in reversed(self.coeffs):
            value = (value * x + coefficient) % P
        return value

    def __len__(self) -> int:
        return len(self.coeffs)

    def __repr__(self) -> str:
        return f"ProofPoly[{self.modulus}]({self.coeffs})"

    def faults(self) -> tuple[str, ...]:
        """Why no verifier may use this proof; empty for a usable one."""
        found = []
        if not self.coeffs:
            found.append("it has no coefficients")
        if len(self.coeffs) > P:
            found.append(f"it has {len(self.coeffs)} coefficients, {P} are the most")
        if not 1 <= self.modulus <= P:
            null = " (the null proof: building it failed)" if self.modulus == 0 else ""
            found.append(f"its modulus is {self.modulus}{null}, allowed are 1 to {P}")
        if self.coeffs and max(self.coeffs) >= P:
            found.append(f"a coefficient is {max(self.coeffs)}, allowed are 0 to {P - 1}")
        return tuple(found)

    @classmethod
    def from_points(cls, x: Sequence[int], y: Sequence[int]) -> "ProofPoly":
        """The polynomial through the points, over the largest modulus that keeps the x apart."""
        xs = np.asarray(x, dtype=np.int64).reshape(1, -1)
        ys = np.asarray(y, dtype=np.int64).reshape(1, -1)
        if xs.shape != ys.shape or xs.size == 0:
            raise MalformedProof(
                f"{xs.size} x and {ys.size} y; give the same number of both, at least one"
            )
        if xs.min() < 0 or ys.min() < 0:
            raise MalformedProof("a negative x or y; indices and bit patterns start at 0")
        return cls.from_bytes(words_from_points(xs, ys).tobytes())

    @classmethod
    def from_points_tensor(cls, x: Tensor, y: Tensor) -> "ProofPoly":
        """As `from_points`; a bf16 or fp16 y stands for its bit patterns."""
        if x.dtype not in (torch.int32, torch.int64) or x.dim() != 1:
            raise MalformedProof(f"x is {x.dtype} {list(x.shape)}; give int32 or int64, 1-D")
        if y.dtype in (torch.bfloat16, torch.float16):
            y = bit_patterns(y)
        elif y.dtype not in (torch.int32, torch.uint32, torch.int64):
            raise MalformedProof(
                f"y is {y.dtype}; the field holds 16-bit patterns: give bfloat16, float16, int32, "
                "uint32 or int64"
            )
        if y.dim() != 1:
            raise MalformedProof(f"y has shape {list(y.shape)}; give a 1-D tensor")
        return cls.from_points(x.tolist(), y.tolist())

    @classmethod
    def null(cls, length: int) -> "ProofPoly":
        """The proof that stands for a failed build."""
        return cls([0] * length, 0)

    def to_bytes(self) -> bytes:
        """2 + 2 * len(self) bytes."""
        return struct.pack(f">{1 + len(self)}H", self.modulus, *self.coeffs)

    def to_base64(self) -> str:
        """Standard base64, padded."""
        return base64.b64encode(self.to_bytes()).decode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "ProofPoly":
        """Parse one proof; an odd or too small number of bytes is refused."""
        words = proof_words(data).tolist()
        return cls(words[1:], words[0])

    @classmethod
    def from_base64(cls, text: str) -> "ProofPoly":
        """Parse standard base64 strictly: no other characters, right padding."""
        if not isinstance(text, str):
            raise MalformedProof(f"base64 text is str, got {type(text).__name__}")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise MalformedProof(f"not base64 ({error}): {text[:40]!r}") from error
        if base64.b64encode(data).decode("ascii") != text:
            raise MalformedProof(f"not the canonical base64 of its bytes: {text[:40]!r}")
        return cls.from_bytes(data)


def proof_words(data: bytes) -> Words:
    """Modulus and coefficients of one proof's bytes, not judged; MalformedProof for no proof."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise MalformedProof(f"a proof is bytes, got {type(data).__name__}")
    if len(data) < WORD or len(data) % WORD:
        raise MalformedProof(
            f"a proof has 2 + 2 * topk bytes, got {len(data)}; split a concatenation into its "
            "proofs first"
        )
    return np.frombuffer(data, dtype=">u2")


def bit_patterns(values: Tensor) -> Tensor:
    """The 16-bit patterns of bf16 or fp16 values as int64."""
    return values.view(torch.int16).to(torch.int64) & _LARGEST_WORD


def words_from_points(indices: Ints, patterns: Ints) -> Words:
    """Proofs [chunks, 1 + k] of rows of indices and bit patterns, both [chunks, k]."""
    words = np.empty((len(indices), 1 + indices.shape[1]), dtype=">u2")
    words[:, 0] = moduli = injective_moduli(indices)
    words[:, 1:] = interpolate(indices % moduli[:, None], patterns % P)
    return words


def find_injective_modulus(x: list[int]) -> int:
    """The largest modulus from 65497 down to 2**15 + 1 that keeps the numbers apart."""
    if not x:
        return P
    return int(injective_moduli(np.asarray(x, dtype=np.int64).reshape(1, -1))[0])
