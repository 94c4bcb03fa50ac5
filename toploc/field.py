"""Arithmetic over the prime field GF(65497), for many polynomials at once.

Invariants: every number is an integer in [0, P); rows are independent, one polynomial per row.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from toploc.errors import NoInjectiveModulus

P = 65497
"""The largest modulus and the size of the field: a prime below 2**16."""

SMALLEST_MODULUS = 2**15
"""The search for a modulus ends above this value, as the PyPI package's does."""

Number = TypeVar("Number", bound=np.generic)
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def plain(numbers: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """As compiled code takes them: one row after the other, aligned."""
    return np.require(numbers, requirements=["C", "A"])


def injective_moduli(indices: Ints) -> Ints:
    """Per row the largest modulus up to P that keeps the row's indices [chunks, k] apart."""
    from toploc import kernels

    ordered = np.sort(indices, axis=1)
    if indices.shape[1] > P or (ordered[:, 1:] == ordered[:, :-1]).any():
        raise _none_found(indices.shape[1])
    moduli = kernels.injective_moduli(plain(indices), SMALLEST_MODULUS)[:, 0]
    if not moduli.all():
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
    """
    from toploc import kernels

    return kernels.interpolate(plain(x), plain(y))


def evaluate(coefficients: Ints, x: Ints) -> Ints:
    """Values [polynomials, points] of polynomials [polynomials, k] at x in [0, P)."""
    from toploc import kernels

    return kernels.evaluate(plain(coefficients), plain(x))
