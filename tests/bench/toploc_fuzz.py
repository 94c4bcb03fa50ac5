"""Random hostile input for the parsers and verifiers of toploc.

    nice -n 19 python -m tests.bench.toploc_fuzz [--minutes 10] [--seed 0]

Nothing may come out but the package's own errors and refusals, and nothing may be accepted but the
polynomials that were honestly built for these activations (a small shift of the constant
coefficient shifts all values alike, as rounding may, and passes). Prints the number of inputs per
kind as one JSON line; ends with the input in full at the first finding.
"""

import argparse
import base64
import json
import logging
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tests.bench.toploc_fuzz_signed import signed
from toploc import (
    ProofPoly,
    build_proofs,
    build_proofs_bytes,
    prove,
    verify_proofs,
    verify_proofs_base64,
    verify_proofs_bytes,
)
from toploc.errors import ToplocError
from toploc.field import P
from toploc.inspection import inspect_proofs
from toploc.verdict import Limits, judge_proofs

TOPK = 128
SIZE = 2 + 2 * TOPK
SHAPES = ((33, 128), (80, 256), (3, 4096), (40, 2304))
"""Rows and channels; the first chunk of the last has more values than the field."""
WORDS = (0, 1, 2, 127, 128, 2**15 - 1, 2**15, 2**15 + 1, P - 2, P - 1, P, P + 1, 2**16 - 1)
LIMITS = (Limits(), Limits(60, 40.0, 40.0))

Random = np.random.Generator
Mutation = Callable[[Random, list[bytes], "Base"], list[bytes]]


class Base:
    """Activations, heavy-tailed as a model's, and their honest proofs."""

    def __init__(self, random: Random, rows: int, hidden: int) -> None:
        scale = random.random(hidden) ** 4 * 20 + 0.5
        self.values = random.standard_normal((rows, hidden)) * scale
        self.activations = torch.from_numpy(self.values).bfloat16()
        self.proofs = build_proofs_bytes(self.activations, 32, TOPK, skip_prefill=True)
        patterns = self.activations.flatten().abs().topk(4 * TOPK).values.view(torch.int16)
        self.common = np.bincount(patterns.numpy()).argmax()

    def others(self, random: Random) -> Tensor:
        """Activations that are not these, but like them."""
        kind = random.integers(5)
        if kind == 0:
            return self.activations.roll(int(random.integers(1, len(self.values))), 0)
        if kind == 1:
            return -self.activations
        if kind == 2:
            return self.activations[:, torch.from_numpy(random.permutation(self.values.shape[1]))]
        if kind == 3:
            return self.activations * float(random.choice([0.25, 0.5, 2.0, 4.0]))
        noise = random.standard_normal(self.values.shape)
        return torch.from_numpy(self.values * (1 + noise)).bfloat16()


# --- mutations of a list of proofs ---


def bytes_changed(random: Random, proofs: list[bytes], base: Base) -> list[bytes]:
    at = random.integers(len(proofs))
    data = bytearray(proofs[at])
    for place in random.integers(0, max(len(data), 1), random.integers(1, 9)).tolist():
        if data:
            data[place] = random.integers(256) if random.random() < 0.5 else data[place] ^ 1
    return [*proofs[:at], bytes(data), *proofs[at + 1 :]]


def words_changed(random: Random, proofs: list[bytes], base: Base) -> list[bytes]:
    at = random.integers(len(proofs))
    words = np.frombuffer(proofs[at][: len(proofs[at]) // 2 * 2], ">u2").copy()
    if len(words):
        places = random.integers(0, len(words), random.integers(1, 5))
        if random.random() < 0.3:
            places[0] = 0
        words[places] = random.choice(WORDS, len(places))
    return [*proofs[:at], words.tobytes(), *proofs[at + 1 :]]


def lengths_changed(random: Random, proofs: list[bytes], base: Base) -> list[bytes]:
    at = random.integers(len(proofs))
    data = proofs[at]
    cut = int(random.integers(0, len(data) + 1))
    grown = data + random.bytes(int(random.integers(1, 600)))
    new = [data[:cut], data[cut:], grown, b"", data[:2]][random.integers(5)]
    return [*proofs[:at], new, *proofs[at + 1 :]]


def order_changed(random: Random, proofs: list[bytes], base: Base) -> list[bytes]:
    kind = random.integers(5)
    if kind == 0:
        return [proofs[i] for i in random.permutation(len(proofs))]
    if kind == 1:
        return proofs[: random.integers(len(proofs))]
    if kind == 2:
        return [*proofs, proofs[random.integers(len(proofs))]]
    if kind == 3:
        return [proofs[random.integers(len(proofs))]] * len(proofs)
    first, second = (proofs[i] for i in random.integers(0, len(proofs), 2))
    cut = int(random.integers(1, max(len(first), 2)))
    at = random.integers(len(proofs))
    return [*proofs[:at], first[:cut] + second[cut:], *proofs[at + 1 :]]


def written_down(random: Random, proofs: list[bytes], base: Base) -> list[bytes]:
    """Polynomials of low degree, sparse or dense, with values that the activations have often."""
    modulus = int(random.choice([P, P, P - 1, 2**15 + 1, 1, 2, 3, 64, 0]))
    size = int(random.choice([TOPK, TOPK, TOPK, 1, 2, 64, 129, 300]))
    coefficients = random.integers(0, P, size)
    kind = random.integers(4)
    if kind == 0:
        coefficients[1:] = 0
    elif kind == 1:
        coefficients[random.integers(0, size) :] = 0
    elif kind == 2:
        coefficients[1:] *= random.random(size - 1) < 0.1
    coefficients[0] = base.common + random.integers(-40, 40)
    forged = ProofPoly(coefficients.tolist(), modulus).to_bytes()
    share = random.random()
    return [forged if random.random() < share or len(proofs) == 1 else p for p in proofs]


def of_other_work(random: Random, proofs: list[bytes], base: Base) -> list[bytes]:
    topk, rows = int(random.choice([TOPK, TOPK, 64])), int(random.choice([32, 32, 16]))
    other = build_proofs_bytes(base.others(random), rows, topk, skip_prefill=True)
    if random.random() < 0.5 and len(other) == len(proofs):
        return [o if random.random() < 0.5 else p for o, p in zip(other, proofs, strict=True)]
    return other


def noise(random: Random, proofs: list[bytes], base: Base) -> list[bytes]:
    return [random.bytes(int(random.choice([SIZE, SIZE, random.integers(0, 600)]))) for _ in proofs]


MUTATIONS: tuple[Mutation, ...] = (
    bytes_changed, words_changed, lengths_changed, order_changed, written_down, of_other_work,
    noise,
)  # fmt: skip


# --- what is tried with them ---


def honest_but_for_a_shift(base: Base, proofs: bytes) -> bool:
    """Whether every chunk has its honest polynomial, the constant coefficient apart."""
    return [proofs[i + 4 : i + SIZE] for i in range(0, len(proofs), SIZE)] == [
        proof[4:] for proof in base.proofs
    ]


def judged(random: Random, proofs: list[bytes], base: Base) -> None:
    joined = b"".join(proofs)
    verdict = judge_proofs(base.activations, joined, LIMITS[random.integers(2)])
    assert verdict.accepted != bool(verdict.reasons)
    if verdict.accepted:
        assert honest_but_for_a_shift(base, joined), "accepted what was not honestly built"
    json.dumps(verdict.figures, allow_nan=False)


def verified(random: Random, proofs: list[bytes], base: Base) -> None:
    topk = int(random.choice([TOPK, TOPK, 1, 64, 0, -1, 10**6]))
    rows = int(random.choice([32, 32, 7, 0, -3]))
    rest = rows, topk, bool(random.random() < 0.8)
    form = random.integers(3)
    try:
        if form == 0:
            results = verify_proofs_bytes(base.activations, proofs, *rest)
        elif form == 1:
            results = verify_proofs(list(base.activations), parsed(proofs), *rest)
        else:
            texts = [base64.b64encode(proof).decode() for proof in proofs]
            results = verify_proofs_base64(base.activations, texts, *rest)
    except ToplocError:
        return
    assert len(results) == len(proofs) > 0
    for result in results:
        assert 0 <= result.exp_mismatches <= topk
        for figure in (result.mant_err_mean, result.mant_err_median):
            assert 0 <= figure <= 127 or (figure == 2.0**64 and result.exp_mismatches == topk)


def parsed(proofs: list[bytes]) -> list[ProofPoly]:
    """The proofs, each the same after a round trip through its forms."""
    found = []
    for data in proofs:
        proof = ProofPoly.from_bytes(data)
        assert proof.to_bytes() == data == ProofPoly.from_base64(proof.to_base64()).to_bytes()
        found.append(proof)
    return found


def read(random: Random, proofs: list[bytes], base: Base) -> None:
    text = base64.b64encode(b"".join(proofs)).decode()
    places = random.integers(0, len(text) + 1, 3)
    changed = "".join(
        text[a:b] + str(random.choice(["", "=", "\n", "é", "-", "\0", "A"]))
        for a, b in zip([0, *sorted(places)], [*sorted(places), len(text)], strict=True)
    )
    tries: tuple[Callable[[], object], ...] = (
        lambda: parsed(proofs),
        lambda: inspect_proofs(b"".join(proofs), int(random.choice([TOPK, 1, 64]))),
        lambda: ProofPoly.from_base64(changed),
    )
    for attempt in tries:
        try:
            attempt()
        except ToplocError:
            pass


def built(random: Random, proofs: list[bytes], base: Base) -> None:
    """Activations that cannot be proven: null proofs or an error, and never a figure."""
    activations = base.others(random)[: random.integers(0, 40)].clone()
    kind = random.integers(7)
    if kind == 0 and activations.numel():
        place = random.integers(activations.numel())
        activations.view(-1)[place] = float(random.choice([np.nan, np.inf, -np.inf]))
    elif kind == 1:
        activations = activations.to(random.choice([torch.float32, torch.float64, torch.int16]))
    elif kind == 2:
        activations = activations[:, : random.integers(0, 200)]
    elif kind == 3:
        activations = activations.reshape(-1, 2, activations.shape[1] // 2)
    elif kind == 4:
        activations = activations.t()
    given = list(activations) if random.random() < 0.5 else activations
    if kind == 5 and len(given) > 1:
        given = [a[: random.integers(1, 300)] for a in activations]
    rest = int(random.choice([32, 32, 5, 0])), int(random.choice([TOPK, 16, 0, 10**6]))
    skip_prefill = bool(random.random() < 0.7)
    made = build_proofs(given, *rest, skip_prefill)
    try:
        results = verify_proofs(given, made, *rest, skip_prefill)
    except ToplocError:
        assert not made or all(proof.modulus == 0 for proof in made)
    else:
        assert all(result.exp_mismatches == 0 for result in results)
    try:
        prove(activations, topk=rest[1], decode_batching_size=rest[0])
    except ToplocError:
        pass


TARGETS = (judged, judged, judged, verified, read, built, signed)


def fuzz(seconds: float, seed: int = 0) -> Counter[str]:
    """Try random inputs for so long; returns how many of each kind. AssertionError: a finding."""
    random = np.random.default_rng(seed)
    bases = [Base(random, *shape) for shape in SHAPES]
    for base in bases:
        assert judge_proofs(base.activations, b"".join(base.proofs)).accepted
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        base = bases[random.integers(len(bases))]
        proofs = base.proofs
        for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
            if proofs:
                proofs = MUTATIONS[random.integers(len(MUTATIONS))](random, proofs, base)
        target = TARGETS[random.integers(len(TARGETS))]
        try:
            target(random, proofs, base)
        except Exception as error:
            shown = [proof.hex() for proof in proofs]
            raise AssertionError(
                f"{target.__name__} on {list(base.activations.shape)} after "
                f"{counts.total()} inputs of seed {seed}: {error!r}; proofs: {shown}"
            ) from error
        counts[target.__name__] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("toploc.build").setLevel(logging.CRITICAL)
    counts = fuzz(arguments.minutes * 60, arguments.seed)
    print(json.dumps({"bench": "toploc_fuzz", "inputs": counts.total(), **counts}))


if __name__ == "__main__":
    main()
