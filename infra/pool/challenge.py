"""Proof of compute: a matrix product that is committed to before anybody knows which rows count.

The pool names a seed. The node computes C = A B, A with `rows` rows, B square, and sends a Merkle
root over the rows of C; that takes 2 * rows * size^2 operations, and its time is the node's rate.
Then the pool names random rows. The node opens them, and the pool checks each against its own
product with a secret random vector r, as Freivalds did (1977): row_i r = a_i (B r) modulo a prime.
The pool's work is size^2, whatever `rows` is. C r from the node would prove nothing: A (B r) gives
it without C. Who left out a share of the rows passes with (1 - share)^OPENED.

Entries are whole numbers of four bits, so that float32 sums are exact in any order (size <= 2^17)
and bf16, fp16 and tf32 inputs do as well. Leaves hold one number per row, that no one has without
all of the row's entries: hashing whole rows would take longer than a card takes to multiply. That
number need not resist collisions: r lets only the true row pass.

Pure: numpy on the pool's side and on a CPU; on a card the node hands in its own `Arrays`.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from infra.pool.core.requirements import Specs, same_model

Array = Any
"""An integer array of numpy or of the card's library; the operators used here are the same."""

BLOCK = 256
"""Rows of one leaf."""
OPENED = 40
"""Rows that are opened: one in ten left out passes with 1.5 %."""
PRIME = 2**31 - 1
_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B1

FLOORS = {
    "b200": 400e12,
    "h200": 200e12,
    "h100": 200e12,
    "a100": 80e12,
    "l40": 60e12,
    "5090": 60e12,
    "4090": 50e12,
    "3090": 20e12,
}
"""Operations per second that one card of a model must show, well below what it can do."""
ANY_CARD = 1e12
ANY_CPU = 7e6
"""Nobody claims much for a processor: five minutes, however busy it is."""


@dataclass(frozen=True)
class Challenge:
    """What a node has to multiply."""

    seed: str
    """32 bytes in hex."""
    rows: int
    """A power of two times BLOCK."""
    size: int


@dataclass(frozen=True)
class Opening:
    """One row, and why it is the one that was committed to."""

    row: int
    values: str
    """The row: int32, little endian, base64."""
    folds: str
    """One int64 for each row of its block, little endian, base64."""
    path: tuple[str, ...]
    """Hashes beside the way to the root, in hex, from the leaf up."""


@dataclass(frozen=True)
class Verdict:
    """Whether the node has the compute that it claims."""

    passed: bool
    rate: float
    """Operations per second, from the challenge being sent to the root's arrival."""
    reason: str = ""


class Arrays(Protocol):
    """Where a node computes."""

    def arange(self, start: int, stop: int) -> Array:
        """int64 numbers."""
        ...

    def product(self, a: Array, b: Array) -> Array:
        """Exact product of two matrices of small whole numbers, int64."""
        ...

    def host(self, values: Array) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The same on the host."""
        ...


class Numpy:
    """The processor."""

    def arange(self, start: int, stop: int) -> Array:
        """int64 numbers."""
        return np.arange(start, stop, dtype=np.int64)

    def product(self, a: Array, b: Array) -> Array:
        """float32 products, exact for these numbers."""
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.int64)

    def host(self, values: Array) -> Any:
        """As it is."""
        return values


def challenge_for(specs: Specs, seed: bytes) -> Challenge:
    """A product that takes a node of these specs about a second, or a quarter of it on a CPU."""
    if specs.gpu_count:
        return Challenge(seed.hex(), BLOCK << 14, 2048)
    return Challenge(seed.hex(), BLOCK << 4, 512)


def floor_of(specs: Specs) -> float:
    """Operations per second that a node of these specs must show."""
    if not specs.gpu_count:
        return ANY_CPU
    known = [rate for model, rate in FLOORS.items() if same_model(model, specs.gpu_model)]
    return specs.gpu_count * max(known, default=ANY_CARD)


class Work:
    """A node's side of one challenge."""

    def __init__(self, challenge: Challenge, devices: Sequence[Arrays], step: int = 8):
        """Multiply; `step` blocks at a time, on each device in turn."""
        self._challenge = challenge
        self._devices = devices
        rows = BLOCK * step
        squares = [_square(challenge, device) for device in devices]
        pending = []
        for number, first in enumerate(range(0, challenge.rows, rows)):
            device, square = devices[number % len(devices)], squares[number % len(devices)]
            last = min(first + rows, challenge.rows)
            product = device.product(_left(challenge, device, first, last), square)
            pending.append((device, _fold(product, device.arange(0, challenge.size))))
        self._folds = np.concatenate([device.host(folds) for device, folds in pending])
        blocks = self._folds.astype("<i8").reshape(-1, BLOCK)
        self._tree = _tree([_leaf(block.tobytes()) for block in blocks])
        self._squares = squares

    @property
    def root(self) -> str:
        """What the node commits to, in hex."""
        return self._tree[-1][0].hex()

    def open(self, rows: Sequence[int]) -> list[Opening]:
        """The asked rows; they are computed once more, only their folds were kept."""
        device, challenge = self._devices[0], self._challenge
        openings = []
        for row in rows:
            values = device.host(
                device.product(_left(challenge, device, row, row + 1), self._squares[0])
            )
            leaf = row // BLOCK
            folds = self._folds[leaf * BLOCK : (leaf + 1) * BLOCK]
            path = tuple(
                level[(leaf >> depth) ^ 1].hex() for depth, level in enumerate(self._tree[:-1])
            )
            openings.append(
                Opening(row, _text(values[0].astype("<i4")), _text(folds.astype("<i8")), path)
            )
        return openings


def rows_to_open(challenge: Challenge, secret: bytes) -> list[int]:
    """Rows that a node must open, from a secret made after its root has come."""
    drawn = np.random.Generator(np.random.Philox(key=_key(secret, b"rows")))
    return [int(row) for row in drawn.integers(0, challenge.rows, OPENED)]


def judge(
    challenge: Challenge,
    specs: Specs,
    root: str,
    openings: Sequence[Opening],
    secret: bytes,
    seconds: float,
) -> Verdict:
    """Judge what a node opened; `secret` is the one that chose the rows."""
    rate = 2.0 * challenge.rows * challenge.size**2 / max(seconds, 1e-6)
    asked = rows_to_open(challenge, secret)
    if [opening.row for opening in openings] != asked:
        return Verdict(False, rate, "it did not open the rows that were asked for")
    drawn = np.random.Generator(np.random.Philox(key=_key(secret, b"vector")))
    vector = drawn.integers(0, PRIME, challenge.size, dtype=np.int64)
    cpu = Numpy()
    image = (_square(challenge, cpu) @ vector) % PRIME
    for opening in openings:
        fault = _fault(challenge, root, opening, vector, image)
        if fault:
            return Verdict(False, rate, f"row {opening.row}: {fault}")
    floor = floor_of(specs)
    if rate < floor:
        return Verdict(False, rate, f"{rate:.3g} operations per second; claimed are {floor:.3g}")
    return Verdict(True, rate)


def _fault(challenge: Challenge, root: str, opening: Opening, vector: Array, image: Array) -> str:
    values = _array(opening.values, "<i4", challenge.size)
    folds = _array(opening.folds, "<i8", BLOCK)
    if values is None or folds is None:
        return "it is not of the right size"
    cpu = Numpy()
    left = _left(challenge, cpu, opening.row, opening.row + 1)[0]
    if (values % PRIME * vector % PRIME).sum() % PRIME != (left @ image) % PRIME:
        return "it is not the product"
    fold = _fold(values[None, :], cpu.arange(0, challenge.size))[0]
    if fold != folds[opening.row % BLOCK]:
        return "it is not the row that was committed to"
    return "" if _climb(opening, folds.astype("<i8").tobytes()) == root else "it is not in the tree"


def _climb(opening: Opening, leaf: bytes) -> str:
    node, place = _leaf(leaf), opening.row // BLOCK
    for text in opening.path:
        try:
            beside = bytes.fromhex(text)
        except ValueError:
            return ""
        node = _join(beside, node) if place & 1 else _join(node, beside)
        place >>= 1
    # A path that is too short leaves part of the place unused.
    return "" if place else node.hex()


def _square(challenge: Challenge, arrays: Arrays) -> Array:
    size = challenge.size
    return _entries(challenge, arrays.arange(-size, 0), arrays.arange(0, size))


def _left(challenge: Challenge, arrays: Arrays, first: int, last: int) -> Array:
    return _entries(challenge, arrays.arange(first, last), arrays.arange(0, challenge.size))


def _entries(challenge: Challenge, rows: Array, columns: Array) -> Array:
    """Entries -7..8 of some rows; B has the rows below zero."""
    words = np.frombuffer(hashlib.sha256(bytes.fromhex(challenge.seed)).digest(), "<u4")
    first, second, third = (int(word) for word in words[:3])
    keys = _mix((_mix((rows ^ first) & _WORD) + second) & _WORD)
    places = _mix(((columns * _GOLDEN) ^ third) & _WORD)
    return ((_mix(keys[:, None] ^ places[None, :]) >> 12) & 15) - 7


def _fold(product: Array, columns: Array) -> Array:
    """One number per row that mixes every entry with its place."""
    places = (columns * _GOLDEN) & _WORD
    return _mix((product + places[None, :]) & _WORD).sum(1)


def _mix(word: Array) -> Array:
    """The finalizer of MurmurHash3 (Appleby), on 32-bit words in int64."""
    word = word ^ (word >> 16)
    word = (word * 0x85EBCA6B) & _WORD
    word = word ^ (word >> 13)
    word = (word * 0xC2B2AE35) & _WORD
    return word ^ (word >> 16)


def _tree(leaves: list[bytes]) -> list[list[bytes]]:
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([_join(*below[i : i + 2]) for i in range(0, len(below), 2)])
    return levels


def _leaf(data: bytes) -> bytes:
    return hashlib.sha256(b"\0" + data).digest()


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _key(secret: bytes, use: bytes) -> int:
    return int.from_bytes(hashlib.sha256(use + secret).digest()[:16], "little")


def _text(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _array(text: str, kind: str, length: int) -> Array:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(data) != length * np.dtype(kind).itemsize:
        return None
    return np.frombuffer(data, kind).astype(np.int64)
