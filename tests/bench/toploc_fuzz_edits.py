"""Proofs that were honestly built, and what becomes of them in hostile hands (strategies)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from toploc import ProofPoly, build_proofs_bytes
from toploc.field import P
from toploc.verdict import judge_proofs

TOPK = 128
SIZE = 2 + 2 * TOPK
SHAPES = ((33, 128), (80, 256), (3, 4096), (40, 2304))
"""Rows and channels; the first chunk of the last has more values than the field."""
WORDS = st.sampled_from(
    [0, 1, 2, 127, 128, 2**15 - 1, 2**15, 2**15 + 1, P - 2, P - 1, P, P + 1, 2**16 - 1]
) | st.integers(0, 2**16 - 1)
SEEDS = st.integers(0, 2**32 - 1)

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Base:
    """Activations, heavy-tailed as a model's, and their honest proofs."""

    def __init__(self, shape: tuple[int, int], seed: int) -> None:
        random = np.random.default_rng(seed)
        scale = random.random(shape[1]) ** 4 * 20 + 0.5
        self.values = random.standard_normal(shape) * scale
        self.activations = torch.from_numpy(self.values).bfloat16()
        self.proofs = build_proofs_bytes(self.activations, 32, TOPK, skip_prefill=True)
        patterns = self.activations.flatten().abs().topk(4 * TOPK).values.view(torch.int16)
        self.common = int(np.bincount(patterns.numpy()).argmax())
        self.name = f"Base({shape}, {seed})"
        assert judge_proofs(self.activations, b"".join(self.proofs)).accepted

    def __repr__(self) -> str:
        return self.name

    def built(self, proofs: bytes) -> bool:
        """Whether every chunk has its honest polynomial, the constant coefficient apart."""
        return [proofs[i + 4 : i + SIZE] for i in range(0, len(proofs), SIZE)] == [
            proof[4:] for proof in self.proofs
        ]


base_of = cache(Base)
bases = st.builds(base_of, st.sampled_from(SHAPES), st.integers(0, 2))


def others(draw: Draw, base: Base) -> Tensor:
    """Activations that are not these, but like them."""
    kind, random = draw(st.integers(0, 4)), np.random.default_rng(draw(SEEDS))
    if kind == 0:
        return base.activations.roll(draw(st.integers(1, len(base.values) - 1)), 0)
    if kind == 1:
        return -base.activations
    if kind == 2:
        return base.activations[:, torch.from_numpy(random.permutation(base.values.shape[1]))]
    if kind == 3:
        return base.activations * draw(st.sampled_from([0.25, 0.5, 2.0, 4.0]))
    noise = random.standard_normal(base.values.shape) * draw(st.sampled_from([0.5, 1.0]))
    return torch.from_numpy(base.values * (1 + noise)).bfloat16()


# --- edits ---


def bytes_changed(draw: Draw, data: bytes, base: Base) -> bytes:
    changed = bytearray(data)
    for place in draw(st.lists(st.integers(0, max(len(data) - 1, 0)), min_size=1, max_size=8)):
        changed[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(changed)


def words_changed(draw: Draw, data: bytes, base: Base) -> bytes:
    words = np.frombuffer(data[: len(data) // 2 * 2], ">u2").copy()
    if not len(words):
        return data
    places = st.dictionaries(st.integers(0, len(words) - 1), WORDS, max_size=4)
    for place, word in draw(places).items():
        words[place] = word
    return words.tobytes()


def length_changed(draw: Draw, data: bytes, base: Base) -> bytes:
    cut = draw(st.integers(0, len(data)))
    return draw(
        st.sampled_from([data[:cut], data[cut:], data[:2], b""])
        | st.binary(max_size=600).map(lambda more: data + more)
    )


def spliced(draw: Draw, data: bytes, base: Base) -> bytes:
    cut = draw(st.integers(0, len(data)))
    return data[:cut] + draw(st.sampled_from(base.proofs))[cut:]


def written_down(draw: Draw, data: bytes, base: Base) -> bytes:
    """A polynomial of low degree, sparse or dense, with values that the activations have often."""
    modulus = draw(st.sampled_from([P, P, P - 1, 2**15 + 1, 1, 2, 3, 64, 0]))
    size = draw(st.sampled_from([TOPK, TOPK, TOPK, 1, 2, 64, 129, 300]))
    random = np.random.default_rng(draw(SEEDS))
    coefficients = random.integers(0, P, size)
    kind = draw(st.integers(0, 3))
    if kind == 0:
        coefficients[1:] = 0
    elif kind == 1:
        coefficients[draw(st.integers(0, size - 1)) :] = 0
    elif kind == 2:
        coefficients[1:] *= random.random(size - 1) < draw(st.floats(0, 0.9))
    coefficients[0] = base.common + draw(st.integers(-40, 40))
    return ProofPoly(coefficients.tolist(), modulus).to_bytes()


def noise(draw: Draw, data: bytes, base: Base) -> bytes:
    return draw(st.binary(min_size=SIZE, max_size=SIZE) | st.binary(max_size=600))


OF_ONE = (bytes_changed, words_changed, length_changed, spliced, written_down, noise)


def one_changed(draw: Draw, proofs: list[bytes], base: Base) -> list[bytes]:
    at = draw(st.integers(0, len(proofs) - 1))
    return [*proofs[:at], draw(st.sampled_from(OF_ONE))(draw, proofs[at], base), *proofs[at + 1 :]]


def all_changed(draw: Draw, proofs: list[bytes], base: Base) -> list[bytes]:
    kind = draw(st.sampled_from(OF_ONE))
    return [kind(draw, proof, base) for proof in proofs]


def order_changed(draw: Draw, proofs: list[bytes], base: Base) -> list[bytes]:
    return draw(
        st.permutations(proofs)
        | st.lists(st.sampled_from(proofs), max_size=len(proofs) + 2)
        | st.integers(0, len(proofs)).map(lambda count: proofs[:count])
    )


def of_other_work(draw: Draw, proofs: list[bytes], base: Base) -> list[bytes]:
    topk, rows = draw(st.sampled_from([TOPK, TOPK, 64])), draw(st.sampled_from([32, 32, 16]))
    made = build_proofs_bytes(others(draw, base), rows, topk, skip_prefill=True)
    if len(made) != len(proofs):
        return made
    kept = draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made)))
    return [p if keep else o for o, p, keep in zip(made, proofs, kept, strict=True)]


EDITS = (one_changed, one_changed, all_changed, order_changed, of_other_work)


@st.composite
def hostile(draw: Draw) -> tuple[Base, list[bytes]]:
    """A base and its proofs after up to three edits."""
    base = draw(bases)
    return base, edited(draw, base.proofs, base)


def edited(draw: Draw, proofs: list[bytes], base: Base) -> list[bytes]:
    for edit in draw(st.lists(st.sampled_from(EDITS), max_size=3)):
        if proofs:
            proofs = edit(draw, proofs, base)
    return proofs
