"""Arithmetic over the prime field GF(65497), for many polynomials at once.

Invariants: every number is an integer in [0, P), held in float64 while computing (vector units have
no 64-bit integer remainder; products are below 2**32, and no sum has more than 2**16 of them, so
float64 is exact); rows are independent, one polynomial per row.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from toploc.errors import NoInjectiveModulus

P = 65497
"""The largest modulus and the size of the field: a prime below 2**16."""

SMALLEST_MODULUS = 2**15
"""The search for a modulus ends above this value, as the PyPI package's does."""

_TRANSFORMED = range(32, 4097)
"""Lengths of polynomials at which products by Fourier transform are faster, and exact."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def _reduce(a: Floats) -> Floats:
    """Bring integers of up to 49 bits, negative ones too, into [0, P), in place.

    The half keeps the quotient 0.5 / P away from whole numbers, so its rounding cannot change the
    floor.
    """
    quotient = a + 0.5
    quotient *= 1.0 / P
    np.floor(quotient, out=quotient)
    quotient *= P
    a -= quotient
    return a


@cache
def _inverses() -> Floats:
    """Table of a**(P-2), which is 1/a; entry 0 is never used."""
    base = np.arange(P, dtype=np.float64)
    result = np.ones(P)
    exponent = P - 2
    while exponent:
        if exponent & 1:
            result = _reduce(result * base)
        base = _reduce(base * base)
        exponent >>= 1
    return result


def injective_moduli(indices: Ints) -> Ints:
    """Per row the largest modulus up to P that keeps the row's indices [chunks, k] apart."""
    ordered = np.sort(indices, axis=1)
    if indices.shape[1] > P or (ordered[:, 1:] == ordered[:, :-1]).any():
        raise _none_found(indices.shape[1])
    moduli = np.full(len(indices), P, dtype=np.int64)
    pending = np.arange(len(indices))
    while len(pending):
        residues = np.sort(indices[pending] % moduli[pending, None], axis=1)
        clash = (residues[:, 1:] == residues[:, :-1]).any(axis=1)
        pending = pending[clash]
        moduli[pending] -= 1
        if len(pending) and moduli[pending].min() <= SMALLEST_MODULUS:
            raise _none_found(indices.shape[1])
    return moduli


def _none_found(count: int) -> NoInjectiveModulus:
    return NoInjectiveModulus(
        f"no modulus from {P} down to {SMALLEST_MODULUS + 1} keeps {count} indices apart; give "
        "distinct indices, or fewer"
    )


def interpolate(x: Ints, y: Ints) -> Ints:
    """Coefficients, ascending, of the polynomials through (x, y), each [polynomials, k].

    The x of a row must differ; both must lie in [0, P).

    With M the product of all (X - x_i) and w_i = y_i / M'(x_i), Lagrange's polynomial is the sum of
    w_i * M / (X - x_i). Since 1 / (X - x_i) is the series of x_i**n / X**(n + 1), its coefficient
    of X**j is the sum over n of M[j + n + 1] * s[n], with s[n] the sum of w_i * x_i**n.
    """
    k = x.shape[1]
    baby, giant = _powers(x.astype(np.float64), k)
    upper = _root_products(x)  # M[1] to M[k]
    slopes = _reduce(upper.T * np.arange(1.0, k + 1))
    weights = _reduce(y * _inverses()[_values(slopes, baby, giant).astype(np.int64)])
    sums = _reduce(_reduce(giant * weights[:, None]) @ baby.transpose(0, 2, 1))
    series = sums.reshape(len(x), -1)[:, :k].T
    product = _product(upper, np.ascontiguousarray(series[::-1]))
    return np.ascontiguousarray(_reduce(product[k - 1 : 2 * k - 1]).T).astype(np.int64)


def _root_products(x: Ints) -> Floats:
    """Coefficients of X**1 to X**k [k, polynomials] of the product of all (X - x_i)."""
    count, k = x.shape
    size = 1 << (k - 1).bit_length()
    # Factors are multiplied in pairs, the leading 1 of each being left out. Those that fill up to a
    # power of two are X: the product is moved up by them.
    lower = np.zeros((1, size, count))
    lower[0, :k] = (P - x).T
    while lower.shape[1] > 1:
        left, right = lower[:, 0::2], lower[:, 1::2]
        product = _product(left, right)
        product[len(left) :] += left + right
        lower = _reduce(product)
    return np.concatenate([lower[size - k + 1 :, 0], np.ones((1, count))])


def _product(left: Floats, right: Floats) -> Floats:
    """Products [2 * length, ...] of polynomials [length, ...] with coefficients below P, unreduced.

    A Fourier transform in float64 is out by less than 0.03 where it is used: the rounding error,
    2**-53 times a small multiple of log2(length), is relative to 2**32 * length.
    """
    length = len(left)
    if length in _TRANSFORMED:
        spectrum = np.fft.rfft(left, 2 * length, axis=0)
        spectrum *= np.fft.rfft(right, 2 * length, axis=0)
        return np.rint(np.fft.irfft(spectrum, 2 * length, axis=0))
    product = np.zeros((2 * length, *left.shape[1:]))
    for j in range(length):
        product[j : j + length] += left[j] * right
    return product


def evaluate(coefficients: Ints, x: Ints) -> Ints:
    """Values [polynomials, points] of polynomials [polynomials, k] at x in [0, P)."""
    baby, giant = _powers(x.astype(np.float64), coefficients.shape[1])
    return _values(coefficients, baby, giant).astype(np.int64)


def _powers(x: Floats, k: int) -> tuple[Floats, Floats]:
    """Powers [polynomials, exponents, points] of x with exponents 0 to b-1, and of x**b.

    With b about the root of k, x**n for all n < k is one of the first times one of the second.
    """
    step = 1 << ((k - 1).bit_length() + 1) // 2
    baby = _power_table(x, step)
    return baby, _power_table(_reduce(baby[:, -1] * x), -(-k // step))


def _power_table(x: Floats, count: int) -> Floats:
    """Powers [polynomials, count, points] with exponents 0 to count-1, doubling what is there."""
    table = np.ones((len(x), count, x.shape[1]))
    done, top = 1, x
    while done < count:
        more = min(done, count - done)
        table[:, done : done + more] = _reduce(table[:, :more] * top[:, None])
        done, top = 2 * done, _reduce(top * top)
    return table


def _values(coefficients: npt.NDArray[Any], baby: Floats, giant: Floats) -> Floats:
    """Values of polynomials [polynomials, k] where the powers are those of the points."""
    count, k = coefficients.shape
    padded = np.zeros((count, giant.shape[1] * baby.shape[1]))
    padded[:, :k] = coefficients
    values = _reduce(padded.reshape(count, giant.shape[1], -1) @ baby)
    values *= giant
    return _reduce(values.sum(1))
