"""Interpolation and evaluation over GF(65497) on lists of integers."""

import numpy as np

from toploc.errors import MalformedProof, NoInjectiveModulus
from toploc.field import P, evaluate, interpolate


def compute_newton_coefficients(x: list[int], y: list[int]) -> list[int]:
    """Coefficients, ascending powers, of the polynomial through the points; the x must differ."""
    if len(x) != len(y) or not x:
        raise MalformedProof(
            f"{len(x)} x and {len(y)} y; give the same number of both, at least one"
        )
    xs = np.asarray(x, dtype=np.int64) % P
    if len(np.unique(xs)) != len(xs):
        raise NoInjectiveModulus(f"the x clash modulo {P}; reduce them by an injective modulus")
    coefficients = interpolate(xs[None], np.asarray(y, dtype=np.int64)[None] % P)[0]
    return [int(c) for c in coefficients]


def evaluate_polynomial(coeffs: list[int], x: int) -> int:
    """Value of the polynomial at x."""
    return evaluate_polynomials(coeffs, [x])[0]


def evaluate_polynomials(coeffs: list[int], xs: list[int]) -> list[int]:
    """Values of the polynomial at all of xs."""
    if not coeffs:
        raise MalformedProof("a polynomial without coefficients; give at least one")
    points = np.asarray(xs, dtype=np.int64)[None] % P
    values = evaluate(np.asarray(coeffs, dtype=np.int64)[None] % P, points)[0]
    return [int(v) for v in values]
