"""Whether two expressions are equal: exactly where that can be decided.

Numbers: rationals exactly; else a difference that is not zero, however small, is found by
evaluating it with growing precision, far beyond the digits that the texts can write down.
Expressions with symbols are equal when they agree as real functions at sample points.
"""

from fractions import Fraction
from typing import Any

import sympy

DIGITS = 400
_POINTS = (
    (Fraction(17, 13), Fraction(23, 7), Fraction(5, 11), Fraction(41, 19), Fraction(29, 31)),
    (Fraction(-19, 17), Fraction(-3, 23), Fraction(37, 29), Fraction(-43, 11), Fraction(7, 5)),
    (Fraction(101, 37), Fraction(-61, 53), Fraction(-89, 71), Fraction(3, 47), Fraction(-9, 4)),
    (Fraction(-211, 97), Fraction(107, 59), Fraction(-13, 83), Fraction(-67, 41), Fraction(31, 8)),
    (Fraction(2, 67), Fraction(1, 73), Fraction(149, 7), Fraction(79, 9), Fraction(163, 17)),
    (Fraction(3), Fraction(5), Fraction(7), Fraction(2), Fraction(11)),
    (Fraction(4), Fraction(2), Fraction(9), Fraction(6), Fraction(3)),
)


_UNFINISHED = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative)


def _unfinished(value: Any) -> bool:
    """True for what sympy could not work out: its numeric values of such things prove nothing."""
    return bool(value.has(*_UNFINISHED))


def is_zero(value: Any) -> bool:
    """True when a number is zero."""
    if value.is_Rational or _unfinished(value):
        return bool(value == 0)
    if value.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        return False
    if _surely_nonzero(value.evalf(30, maxn=120)):
        return False
    if sympy.expand(value) == 0:
        return True
    return not _surely_nonzero(value.evalf(DIGITS, maxn=4 * DIGITS + 2 * _literal_digits(value)))


def _literal_digits(value: Any) -> int:
    """Digits of the longest rational in an expression: how small a hidden difference may be."""
    numbers = value.atoms(sympy.Rational)
    bits = max((max(n.p.bit_length(), n.q.bit_length()) for n in numbers), default=0)
    return min(bits, 60_000) // 3


def _surely_nonzero(value: Any) -> bool:
    """evalf marks digits that it could not make certain with a precision of one bit."""
    if not value.is_number:
        return True
    parts = value.as_real_imag()
    return any(part != 0 and getattr(part, "_prec", 2) > 1 for part in parts)


def numbers_equal(a: Any, b: Any) -> bool:
    """Equality of two expressions without symbols."""
    if a == b:
        return a is not sympy.nan and a is not sympy.zoo
    if a.is_Rational and b.is_Rational:
        return False
    if a.is_infinite or b.is_infinite:
        return False
    return is_zero(a - b)


def _at(expr: Any, point: dict[Any, Any]) -> Any:
    """The real value at a point; None where there is none."""
    value = expr.subs(point)
    if value.is_Rational:
        return value
    rough = value.evalf(30, maxn=120)
    if not rough.is_number or rough.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        return None
    imaginary = rough.as_real_imag()[1]
    return value if abs(imaginary) < Fraction(1, 10**20) * (1 + abs(rough)) else None


def sample_points(symbols: set[Any]) -> list[dict[Any, Any]]:
    """Values for the symbols, by the order of their names."""
    ordered = sorted(symbols, key=str)
    points = []
    for row in _POINTS:
        values = [row[i % len(row)] + i // len(row) for i in range(len(ordered))]
        points.append(
            {
                symbol: sympy.Rational(value.numerator, value.denominator)
                for symbol, value in zip(ordered, values, strict=True)
            }
        )
    return points


def _agree(a: Any, b: Any) -> bool:
    """Equality at one of several points: no proof, but a difference cannot hide at all of them."""
    if a.is_Rational and b.is_Rational:
        return bool(a == b)
    return not _surely_nonzero((a - b).evalf(50, maxn=300))


def functions_equal(a: Any, b: Any) -> bool:
    """Equality of two expressions as real functions of their symbols."""
    if a == b:
        return True
    if _unfinished(a) or _unfinished(b):
        return bool(sympy.simplify(a - b) == 0)
    agreed = 0
    for point in sample_points(a.free_symbols | b.free_symbols):
        left, right = _at(a, point), _at(b, point)
        if (left is None) != (right is None):
            return False
        if left is None or right is None:
            continue
        if not _agree(left, right):
            return False
        agreed += 1
    return agreed >= 2 or bool(sympy.simplify(a - b) == 0)


def expressions_equal(a: Any, b: Any) -> bool:
    """Equality of two expressions."""
    if a.free_symbols or b.free_symbols:
        return functions_equal(a, b)
    return numbers_equal(a, b)


def proportional(a: Any, b: Any, *, positive: bool) -> bool:
    """True when a = c * b for a constant c that is not 0 (and positive, if asked)."""
    symbols = a.free_symbols | b.free_symbols
    if a.free_symbols != b.free_symbols or not symbols:
        return False
    ratios = []
    for point in sample_points(symbols):
        left, right = _at(a, point), _at(b, point)
        if (left is None) != (right is None):
            return False
        if left is None or right is None:
            continue
        left_zero, right_zero = is_zero(left), is_zero(right)
        if left_zero != right_zero:
            return False
        if not left_zero:
            ratios.append(left / right)
    if len(ratios) < 2 or any(not _agree(ratios[0], ratio) for ratio in ratios[1:]):
        return False
    return not positive or bool(ratios[0].evalf(30) > 0)
