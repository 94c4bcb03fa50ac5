"""Rational values of trees, exactly and without sympy.

Sizes are checked before they are computed, so a tower of powers raises TooLarge at once.
"""

import math
from fractions import Fraction

from verifiers.mathlib.errors import TooLarge
from verifiers.mathlib.nodes import Node

MAX_BITS = 2_000_000
MAX_FACTORIAL = 50_000


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _checked(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise TooLarge(f"a number of more than {MAX_BITS} bits")
    return value


def power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """base ** exponent when that is rational for certain; None otherwise."""
    if exponent.denominator != 1:
        return _root(base, exponent)
    n = exponent.numerator
    if n < 0 and base == 0:
        return None
    if base in (0, 1):
        return Fraction(1) if n == 0 else base
    if base == -1:
        return Fraction(1 if n % 2 == 0 else -1)
    if abs(n) * _bits(base) > MAX_BITS:
        raise TooLarge(f"a power of about {min(abs(n), 10**12) * _bits(base)} bits")
    return Fraction(base**n)


def _root(base: Fraction, exponent: Fraction) -> Fraction | None:
    """Exact square roots, by far the most frequent ones; others are left to sympy."""
    if exponent.denominator != 2 or base < 0 or abs(exponent.numerator) > 1000:
        return None
    top, bottom = math.isqrt(base.numerator), math.isqrt(base.denominator)
    if top * top != base.numerator or bottom * bottom != base.denominator:
        return None
    return power(Fraction(top, bottom), Fraction(exponent.numerator))


def _function(name: str, args: list[Fraction]) -> Fraction | None:
    value = args[0]
    if name == "Abs" and len(args) == 1:
        return abs(value)
    if name == "floor" and len(args) == 1:
        return Fraction(math.floor(value))
    if name == "ceiling" and len(args) == 1:
        return Fraction(math.ceil(value))
    if name == "factorial" and len(args) == 1 and value.denominator == 1 and value >= 0:
        if value > MAX_FACTORIAL:
            raise TooLarge(f"the factorial of a number above {MAX_FACTORIAL}")
        return Fraction(math.factorial(value.numerator))
    if name == "binomial" and len(args) == 2 and all(a.denominator == 1 and a >= 0 for a in args):
        n, k = args[0].numerator, args[1].numerator
        if min(k, n - k) * n.bit_length() > MAX_BITS:
            raise TooLarge("a binomial coefficient of too many bits")
        return Fraction(math.comb(n, k))
    if name in ("max", "min"):
        return max(args) if name == "max" else min(args)
    if name in ("gcd", "lcm") and all(a.denominator == 1 for a in args):
        fold = math.gcd if name == "gcd" else math.lcm
        return Fraction(fold(*(a.numerator for a in args)))
    return None


def rational(node: Node) -> Fraction | None:
    """The value of a tree that is rational by plain arithmetic; None when it is not."""
    kind = node.kind
    if kind == "num":
        return node.args[0]  # type: ignore[no-any-return]
    if kind in ("neg", "deg"):
        value = rational(node.args[0])
        return value if value is None or kind == "deg" else -value
    if kind == "pct":
        value = rational(node.args[0])
        return None if value is None else value / 100
    if kind not in ("add", "mul", "div", "ratio", "pow", "func"):
        return None
    values: list[Fraction] = []
    for arg in node.args[1:] if kind == "func" else node.args:
        value = rational(arg)
        if value is None:
            return None
        values.append(value)
    if kind == "add":
        total = Fraction(0)
        for value in values:
            total = _checked(total + value)
        return total
    if kind == "mul":
        product = Fraction(1)
        for value in values:
            product = _checked(product * value)
        return product
    if kind in ("div", "ratio"):
        return None if values[1] == 0 else _checked(values[0] / values[1])
    if kind == "pow":
        return power(values[0], values[1])
    return _function(node.args[0], values) if values else None
