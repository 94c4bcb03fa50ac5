"""Arithmetic over the prime field GF(65497), for many polynomials at once.

Invariants: every number is an integer in [0, P), held in float64 while computing (vector units have
no 64-bit integer remainder, and all products and sums here stay below 2**53, so float64 is exact);
rows are independent, one polynomial per row.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from toploc.errors import NoInjectiveModulus

P = 65497
"""The largest modulus and the size of the field: a prime below 2**16."""

SMALLEST_MODULUS = 2**15
"""The search for a modulus ends above this value, as the PyPI package's does."""

_BABY_STEPS = 16

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def _reduce(a: Floats) -> Floats:
    """Bring integers, negative ones too, into [0, P), in place.

    The half keeps the quotient away from whole numbers, so its rounding cannot change the floor.
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

    The x of a row must differ; both must lie in [0, P). Newton's divided differences, then
    expansion to powers of the variable.
    """
    nodes = np.ascontiguousarray(x.T, dtype=np.int64)
    k, count = nodes.shape
    inverses = _inverses()
    newton = np.ascontiguousarray(y.T, dtype=np.float64)
    for order in range(1, k):
        step = newton[order:] - newton[order - 1 : -1]
        # A negative difference d reads entry P + d of the table, which is the same field element.
        step *= inverses[nodes[order:] - nodes[:-order]]
        newton[order:] = _reduce(step)
    # Horner's scheme on whole polynomials: multiplying by the variable moves the start of the
    # window one place down, so nothing is copied.
    out = np.zeros((2 * k, count))
    start = k
    out[start] = newton[k - 1]
    node_values = nodes.astype(np.float64)
    for j in range(k - 2, -1, -1):
        length = k - 1 - j
        product = out[start : start + length] * node_values[j]
        start -= 1
        out[start] = newton[j]
        window = out[start : start + length]
        window -= product
        _reduce(window)
    return np.ascontiguousarray(out[start : start + k].T).astype(np.int64)


def evaluate(coefficients: Ints, x: Ints) -> Ints:
    """Values [polynomials, points] of polynomials [polynomials, k] at x in [0, P)."""
    count, k = coefficients.shape
    blocks = -(-k // _BABY_STEPS)
    padded = np.zeros((count, blocks * _BABY_STEPS))
    padded[:, :k] = coefficients
    padded = padded.reshape(count, blocks, _BABY_STEPS)
    points = x.astype(np.float64)
    powers = np.ones((count, _BABY_STEPS, points.shape[1]))
    for i in range(1, _BABY_STEPS):
        powers[:, i] = _reduce(powers[:, i - 1] * points)
    giant = _reduce(powers[:, -1] * points)
    value = np.zeros(points.shape)
    # Sums of products by hand: for such small matrices the threads of a BLAS only get in the way.
    for block in range(blocks - 1, -1, -1):
        value *= giant
        for i in range(_BABY_STEPS):
            value += padded[:, block, i, None] * powers[:, i]
        _reduce(value)
    return value.astype(np.int64)
