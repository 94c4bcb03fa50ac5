"""The inner loops, compiled by numba when this module is imported, which only what computes does.

Compiled code is kept in NUMBA_CACHE_DIR if that is set, else next to this file, or where that is
not writable, in the user's cache (trusted like any compiled Python); where nothing is writable,
each process compiles for itself. Invariants: rows are independent; the GIL is released; arrays are
C-contiguous and aligned; nothing is checked here, that is for the callers. Results are integers,
exact, the same on any processor.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

from toploc.field import Floats, Ints, P
from toploc.floats import LN2, LOG_SERIES, MANTISSA
from toploc.philox import MULTIPLIERS, NOISE_DOMAIN, ROUNDS, WEYL

_LAST = 0x7FFFFFFF << 32
_GIVEN = "Array(int64, 2, 'C', readonly=True)"
_NUMBERS = "Array(int64, 1, 'C', readonly=True)"
_MADE = "int64[:, ::1]"
_NO_TOKEN = np.iinfo(np.int64).max
_SQRT2 = math.sqrt(2.0)
_DOMAIN = np.uint64(NOISE_DOMAIN)
_FIRST, _SECOND = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_WEYL_0, _WEYL_1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(*signatures: str, **options: Any) -> Callable[[Function], Function]:
    def compiled(function: Function) -> Function:
        try:
            kernel: Function = njit(list(signatures), cache=True, nogil=True, **options)(function)
        except RuntimeError:  # there is no directory to keep it in
            kernel = njit(list(signatures), nogil=True, **options)(function)
        return kernel

    return compiled


def _inlined(function: Function) -> Function:
    helper: Function = njit(inline="always")(function)
    return helper


@_inlined
def _key(bits: int, wide: bool) -> int:
    """What orders an entry: its magnitude, or if `wide`, the float32 number; -0 is 0."""
    if wide:
        return -(bits & 0x7FFFFFFF) if bits < 0 else bits
    return bits & 0x7FFF


@_inlined
def _kth_largest(keys: npt.NDArray[Any], k: int, wide: bool) -> int:
    """The k-th largest of at least k keys, eight bits at a time."""
    offset = 1 << 31 if wide else 0
    seen = np.empty(256, dtype=np.int64)
    prefix, left = 0, k
    for shift in range(24 if wide else 8, -8, -8):
        seen[:] = 0
        for key in keys:
            number = np.int64(key) + offset
            if number >> (shift + 8) == prefix:
                seen[(number >> shift) & 0xFF] += 1
        digit = 255
        while seen[digit] < left:
            left -= seen[digit]
            digit -= 1
        prefix = (prefix << 8) | digit
    return prefix - offset


@_compiled(
    f"(Array(int16, 2, 'C', readonly=True), int64, int64, {_MADE}, int64[::1])",
    f"(Array(int32, 2, 'C', readonly=True), int64, int64, {_MADE}, int64[::1])",
)
def reaching(bits: npt.NDArray[Any], k: int, width: int, packed: Ints, counts: Ints) -> None:
    """The entries of each row of `bits` [rows, n] that reach a bound which at least k reach.

    The bound is the k-th largest maximum of blocks of `width` entries, n // width >= k. Entries go
    as (-key << 32) | column to the front of `packed` [rows, room], what sorts last fills it up, and
    `counts` [rows] is their number: more than `room` if not all found room.
    """
    wide = np.iinfo(bits.dtype).bits == 32
    rows, n = bits.shape
    room = packed.shape[1]
    blocks = n // width
    maxima = np.empty(blocks, dtype=bits.dtype)
    for r in range(rows):
        row = bits[r]
        for block in range(blocks):
            largest = bits.dtype.type(_key(row[block * width], wide))
            if width == 64:  # the usual width; loops of constant length become vector operations
                for i in range(block * 64, block * 64 + 64):
                    largest = max(largest, bits.dtype.type(_key(row[i], wide)))
            else:
                for i in range(block * width, block * width + width):
                    largest = max(largest, bits.dtype.type(_key(row[i], wide)))
            maxima[block] = largest
        bound = _kth_largest(maxima, k, wide)
        held = 0
        for block in range(blocks + 1):
            if block < blocks and maxima[block] < bound:
                continue
            for i in range(block * width, min(block * width + width, n)):
                key = np.int64(_key(row[i], wide))
                if key >= bound:
                    if held < room:
                        packed[r, held] = (-key << 32) | i
                    held += 1
        counts[r] = held
        for place in range(held, room):
            packed[r, place] = _LAST


@_compiled(f"int64[:, :, ::1]({_GIVEN}, {_NUMBERS}, {_NUMBERS})")
def noise_lanes(blocks: Ints, seeds: Ints, positions: Ints) -> npt.NDArray[np.int64]:
    """Four words [n, m, 4] for each block of the vocabulary, seed [n] and position [n].

    Blocks are [n, m], or [1, m] where they are the same for all rows. See `toploc.philox`.
    """
    rows, m = len(seeds), blocks.shape[1]
    lanes = np.empty((rows, m, 4), dtype=np.int64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for r in range(rows):
        seed, position = np.uint64(seeds[r]), np.uint64(positions[r])
        own = blocks[r if len(blocks) > 1 else 0]
        for i in range(m):
            c0, c1, c2, c3 = np.uint64(own[i]), position & low, position >> half, _DOMAIN
            k0, k1 = seed & low, seed >> half
            for _ in range(ROUNDS):
                first, second = c0 * _FIRST, c2 * _SECOND
                c0, c2 = (second >> half) ^ c1 ^ k0, (first >> half) ^ c3 ^ k1
                c1, c3 = second & low, first & low
                k0, k1 = (k0 + _WEYL_0) & low, (k1 + _WEYL_1) & low
            lanes[r, i, 0], lanes[r, i, 1] = np.int64(c0), np.int64(c1)
            lanes[r, i, 2], lanes[r, i, 3] = np.int64(c2), np.int64(c3)
    return lanes


@_inlined
def _log(x: float, scratch: Floats, bits: Ints) -> float:
    """`toploc.floats.log64` of one number; `bits` are those of `scratch` [1]."""
    scratch[0] = x
    exponent = (bits[0] >> 52) - 1023
    bits[0] = (bits[0] & MANTISSA) | (1023 << 52)
    mantissa = scratch[0]
    if mantissa > _SQRT2:
        mantissa *= 0.5
        exponent += 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = LOG_SERIES[0]
    for term in LOG_SERIES[1:]:
        series = series * z
        series = series + term
    logarithm: float = np.float64(exponent) * LN2 + (s * 2.0) * series
    return logarithm


@_compiled(
    "Tuple((int64[::1], float64[::1]))("
    f"{_GIVEN}, Array(float32, 2, 'C', readonly=True), Array(float32, 2, 'C', readonly=True), "
    f"{_GIVEN}, float64, float64)",
    error_model="numpy",
)
def best(
    words: Ints,
    weights: npt.NDArray[np.float32],
    logits: npt.NDArray[np.float32],
    ids: Ints,
    inverse_temperature: float,
    slack: float,
) -> tuple[Ints, Floats]:
    """Token with the best score of each row, the lowest among equals, and its logit.

    All are [n, width], but `ids` may be [1, width] for all rows. See `toploc.sampling`.
    """
    rows, width = words.shape
    taken, value = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.float64)
    bounds = np.empty(width, dtype=np.float32)
    scratch = np.empty(1, dtype=np.float64)
    bits = scratch.view(np.int64)
    for r in range(rows):
        own = ids[r if len(ids) > 1 else 0]
        least = np.float32(np.inf)
        for i in range(width):
            bounds[i] = np.float32(
                (np.float32(words[r, i]) + np.float32(0.5)) * np.float32(2.0**-32) / weights[r, i]
            )
            least = min(least, bounds[i])
        limit = np.float32(np.log1p(-min(np.float64(least), 1.0 - 2.0**-33)) * -slack)
        highest, taken[r], value[r] = -np.inf, _NO_TOKEN, np.nan
        for i in range(width):
            if bounds[i] <= limit:
                exponential = -_log(1.0 - (words[r, i] + 0.5) * 2.0**-32, scratch, bits)
                noise = np.float64(np.float32(-_log(exponential, scratch, bits)))
                logit = np.float64(logits[r, i])
                score = logit * inverse_temperature + noise
                if score > highest or (score == highest and own[i] < taken[r]):
                    highest, taken[r], value[r] = score, own[i], logit
    return taken, value


@_inlined
def _reduced(a: float) -> float:
    """An integer of up to 49 bits, negative ones too, brought into [0, P).

    Vector units have no remainder of integers; float64 is exact for these. The half keeps the
    quotient 0.5 / P away from whole numbers, so that its rounding cannot change the floor.
    """
    quotient: float = np.floor((a + 0.5) * (1.0 / P))
    return a - quotient * P


@_compiled(f"{_MADE}({_GIVEN}, int64)")
def injective_moduli(indices: Ints, above: int) -> Ints:
    """Per row [rows, 1] the largest modulus up to P that keeps indices apart; 0 if `above` does."""
    rows, k = indices.shape
    moduli = np.zeros((rows, 1), dtype=np.int64)
    taken = np.zeros(P, dtype=np.bool_)
    for r in range(rows):
        for modulus in range(P, above, -1):
            apart = 0
            while apart < k and not taken[indices[r, apart] % modulus]:
                taken[indices[r, apart] % modulus] = True
                apart += 1
            for i in range(apart):
                taken[indices[r, i] % modulus] = False
            if apart == k:
                moduli[r, 0] = modulus
                break
    return moduli


@_compiled("float64(float64[::1])", fastmath={"reassoc"})
def _total(numbers: Floats) -> float:
    """The sum of integers, which no order makes inexact."""
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i]
    return total


@_compiled(f"{_MADE}({_GIVEN}, {_GIVEN})")
def interpolate(x: Ints, y: Ints) -> Ints:
    """Coefficients of the polynomials through (x, y), both [rows, k] of [0, P).

    With M the product of all (X - x_i) and w_i = y_i / M'(x_i), Lagrange's polynomial is the sum of
    w_i * M / (X - x_i). Since 1 / (X - x_i) is the series of x_i**n / X**(n + 1), its coefficient
    of X**j is the sum over n of M[j + n + 1] * s[n], with s[n] the sum of w_i * x_i**n.
    """
    rows, k = x.shape
    coefficients = np.empty((rows, k), dtype=np.int64)
    product: Floats = np.empty(k + 1)
    for r in range(rows):
        points = x[r].astype(np.float64)
        product[:] = 0.0
        product[k] = 1.0  # times X**-k as yet; each factor takes one power of X away
        for point in points:
            for j in range(k):
                product[j] = _reduced(product[j] - point * product[j + 1])
        slopes: Floats = np.zeros(k)
        for j in range(k, 0, -1):
            coefficient = _reduced(product[j] * j)
            for i in range(k):
                slopes[i] = _reduced(slopes[i] * points[i] + coefficient)
        weights = y[r].astype(np.float64)
        for bit in range(16):  # times slopes**(P - 2), that is, divided by them
            for i in range(k if (P - 2) >> bit & 1 else 0):
                weights[i] = _reduced(weights[i] * slopes[i])
            for i in range(k):
                slopes[i] = _reduced(slopes[i] * slopes[i])
        sums: Floats = np.zeros(k)
        for n in range(k):
            power_sum = _reduced(_total(weights))
            higher = product[n + 1 :]
            for j in range(k - n):
                sums[j] += power_sum * higher[j]
            for i in range(k):
                weights[i] = _reduced(weights[i] * points[i])
        for j in range(k):
            coefficients[r, j] = np.int64(_reduced(sums[j]))
    return coefficients


@_compiled(f"{_MADE}({_GIVEN}, {_GIVEN})")
def evaluate(coefficients: Ints, x: Ints) -> Ints:
    """Values [rows, points] of polynomials [rows, k] at x [rows, points] in [0, P): Horner."""
    rows, k = coefficients.shape
    values: Floats = np.empty(x.shape)
    for r in range(rows):
        points = x[r].astype(np.float64)
        row = values[r]
        row[:] = 0.0
        for j in range(k - 1, -1, -1):
            coefficient = np.float64(coefficients[r, j])
            for i in range(len(points)):
                row[i] = _reduced(row[i] * points[i] + coefficient)
    return values.astype(np.int64)
