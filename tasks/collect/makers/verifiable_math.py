"""verifiable_math: generated problems with an exact answer for the box.

Levels: 1 sums of one-digit numbers; 2 longer arithmetic, fractions, percentages, linear equations;
3 quadratics, systems, greatest common divisors, powers; 4 derivatives, series, modular powers.
"""

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tasks.collect.errors import UnknownName
from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_range, row

Problem = tuple[str, str]  # question, answer in LaTeX


def _latex(value: Fraction | int) -> str:
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _nonzero(rng: random.Random, low: int, high: int) -> int:
    return rng.choice([n for n in range(low, high + 1) if n])


def _signed(coefficient: int, symbol: str) -> str:
    sign = "+" if coefficient >= 0 else "-"
    size = abs(coefficient)
    return f"{sign} {'' if size == 1 and symbol else size}{symbol}"


def _lead(coefficient: int, symbol: str) -> str:
    return {1: symbol, -1: f"-{symbol}"}.get(coefficient, f"{coefficient}{symbol}")


def _sum(rng: random.Random) -> Problem:
    terms = [rng.randint(1, 9) for _ in range(rng.randint(2, 3))]
    signs = [rng.choice((1, 1, -1)) for _ in terms[1:]]
    text = str(terms[0])
    total = terms[0]
    for sign, term in zip(signs, terms[1:], strict=True):
        text += f" {'+' if sign > 0 else '-'} {term}"
        total += sign * term
    return f"What is {text}?", str(total)


def _product(rng: random.Random) -> Problem:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    return f"What is {a} * {b}?", str(a * b)


def _chain(rng: random.Random) -> Problem:
    a, b, c, d = (rng.randint(2, 60) for _ in range(4))
    return f"Calculate {a} * ({b} - {c}) + {d}.", str(a * (b - c) + d)


def _fraction(rng: random.Random) -> Problem:
    a, b = rng.randint(1, 19), rng.randint(2, 15)
    c, d = rng.randint(1, 19), rng.randint(2, 15)
    sign = rng.choice("+-")
    left, right = Fraction(a, b), Fraction(c, d)
    value = left + right if sign == "+" else left - right
    return f"Calculate {a}/{b} {sign} {c}/{d} as a fraction in lowest terms.", _latex(value)


def _share(rng: random.Random) -> Problem:
    percent, whole = rng.randint(1, 49) * 2, rng.randint(2, 180) * 10
    return f"What is {percent} percent of {whole}?", _latex(Fraction(percent * whole, 100))


def _linear(rng: random.Random) -> Problem:
    a, x, b = _nonzero(rng, -12, 12), rng.randint(-20, 20), rng.randint(1, 50)
    sign = rng.choice((1, -1))
    return f"Solve for x: {_lead(a, 'x')} {_signed(sign * b, '')} = {a * x + sign * b}.", str(x)


def _linear_fraction(rng: random.Random) -> Problem:
    a, b, c = rng.randint(2, 20), rng.randint(1, 60), rng.randint(1, 90)
    return f"Solve for x: {a}x + {b} = {c}.", _latex(Fraction(c - b, a))


def _quadratic(rng: random.Random) -> Problem:
    p, q = rng.randint(-12, 12), rng.randint(-12, 12)
    b, c = -(p + q), p * q
    middle = f" {_signed(b, 'x')}" if b else ""
    last = f" {_signed(c, '')}" if c else ""
    roots = sorted({p, q})
    answer = "\\{" + ", ".join(map(str, roots)) + "\\}"
    question = f"Find the set of all real solutions of x^2{middle}{last} = 0."
    return question + " Write it as a set, for example \\{1, 2\\}.", answer


def _system(rng: random.Random) -> Problem:
    x, y = rng.randint(-9, 9), rng.randint(-9, 9)
    a, b = rng.randint(1, 9), _nonzero(rng, -9, 9)
    c = rng.randint(1, 9)
    d = rng.choice([n for n in range(-9, 10) if n and a * n != b * c])
    first = f"{_lead(a, 'x')} {_signed(b, 'y')} = {a * x + b * y}"
    second = f"{_lead(c, 'x')} {_signed(d, 'y')} = {c * x + d * y}"
    question = f"Solve the system {first} and {second}. Write the answer as (x, y)."
    return question, f"({x}, {y})"


def _divisor(rng: random.Random) -> Problem:
    g = rng.randint(2, 40)
    a, b = g * rng.randint(2, 40), g * rng.randint(2, 40)
    if rng.random() < 0.5:
        return f"What is the greatest common divisor of {a} and {b}?", str(math.gcd(a, b))
    return f"What is the least common multiple of {a} and {b}?", str(math.lcm(a, b))


def _root(rng: random.Random) -> Problem:
    k, m = rng.randint(2, 20), rng.choice((2, 3, 5, 6, 7, 10, 11, 13, 14, 15))
    return f"Simplify the square root of {k * k * m}.", f"{k}\\sqrt{{{m}}}"


def _derivative(rng: random.Random) -> Problem:
    a, b, c, at = (
        _nonzero(rng, -9, 9),
        _nonzero(rng, -9, 9),
        _nonzero(rng, -9, 9),
        rng.randint(2, 6),
    )
    value = 3 * a * at**2 + 2 * b * at + c
    text = f"f(x) = {_lead(a, 'x^3')} {_signed(b, 'x^2')} {_signed(c, 'x')}"
    return f"Let {text}. What is f'({at})?", str(value)


def _series(rng: random.Random) -> Problem:
    first, step, count = rng.randint(1, 30), rng.randint(2, 12), rng.randint(8, 60)
    total = count * (2 * first + (count - 1) * step) // 2
    return (
        f"An arithmetic sequence starts at {first} and grows by {step} each time. "
        f"What is the sum of its first {count} terms?"
    ), str(total)


def _modular(rng: random.Random) -> Problem:
    base, power, modulus = rng.randint(2, 30), rng.randint(10, 90), rng.randint(7, 60)
    return f"What is the remainder of {base}^{power} divided by {modulus}?", str(
        pow(base, power, modulus)
    )


def _geometric(rng: random.Random) -> Problem:
    first, p, q = rng.randint(1, 20), rng.randint(1, 8), rng.randint(2, 9)
    ratio = Fraction(p, p + q)
    return (
        f"What is the sum of the infinite geometric series with first term {first} "
        f"and ratio {ratio}?"
    ), _latex(first / (1 - ratio))


KINDS: dict[str, tuple[int, Callable[[random.Random], Problem]]] = {
    "sum": (1, _sum),
    "product": (1, _product),
    "chain": (2, _chain),
    "fraction": (2, _fraction),
    "percent": (2, _share),
    "linear": (2, _linear),
    "linear_fraction": (2, _linear_fraction),
    "quadratic": (3, _quadratic),
    "system": (3, _system),
    "divisor": (3, _divisor),
    "root": (3, _root),
    "derivative": (4, _derivative),
    "series": (4, _series),
    "modular": (4, _modular),
    "geometric": (4, _geometric),
}


def make(seed: int, index: int, *, level: int = 2, kind: str = "") -> dict[str, Any]:
    """One problem of the level, or of the named kind whatever the level."""
    check_range("verifiable_math", "level", level, 1, 4)
    if kind and kind not in KINDS:
        raise UnknownName("kind of problem", kind, KINDS, "maker verifiable_math")
    rng = stream("verifiable_math", seed, index)
    chosen = kind or rng.choice([name for name, (rank, _) in KINDS.items() if rank == level])
    question, answer = KINDS[chosen][1](rng)
    prompt = f"{question}\nPut the final answer in \\boxed{{}}."
    gold = f"\\boxed{{{answer}}}"
    return row(
        "verifiable_math",
        seed,
        index,
        prompt,
        {"ground_truth": answer},
        gold,
        kind=chosen,
        level=KINDS[chosen][0],
    )
