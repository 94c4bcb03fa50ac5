"""Straight-line programs over one number, one text or one list, run while they are written.

Each step is a pair of Python source and the same operation as a function, so the result is known
by construction and nothing that was generated is ever executed here.
"""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Step = tuple[list[str], Any]  # source lines, value after them


def _number(rng: random.Random, x: int) -> Step:
    a, b = rng.randint(2, 9), rng.randint(1, 20)
    kind = rng.randrange(8)
    if kind == 0:
        return [f"x = x + {b}"], x + b
    if kind == 1:
        return [f"x = x - {b}"], x - b
    if kind == 2:
        return [f"x = x * {a}"], x * a
    if kind == 3:
        return [f"x = x // {a}"], x // a
    if kind == 4:
        return [f"x = x % {a + b}"], x % (a + b)
    if kind == 5:
        even = ["if x % 2 == 0:", f"    x = x // 2 + {b}", "else:", f"    x = x * {a}"]
        return even, x // 2 + b if x % 2 == 0 else x * a
    if kind == 6:
        return [f"for i in range({a}):", "    x = x + i"], x + a * (a - 1) // 2
    below = ["while x < 50:", f"    x = x + {a}"]
    while x < 50:
        x += a
    return below, x


def _text(rng: random.Random, x: str) -> Step:
    a = rng.randint(1, 3)
    letter = rng.choice("aeiost")
    steps: list[Callable[[], Step]] = [
        lambda: (["x = x.upper()"], x.upper()),
        lambda: (["x = x[::-1]"], x[::-1]),
        lambda: ([f"x = x[{a}:] + x[:{a}]"], x[a:] + x[:a]),
        lambda: ([f'x = x.replace("{letter}", "-")'], x.replace(letter, "-")),
        lambda: (['x = "".join(sorted(x))'], "".join(sorted(x))),
        lambda: ([f"x = x[:-{a}] + str(len(x))"], x[:-a] + str(len(x))),
        lambda: (["x = x.swapcase()"], x.swapcase()),
        lambda: ([f'x = x + "{letter}" * {a}'], x + letter * a),
    ]
    return rng.choice(steps)()


def _list(rng: random.Random, x: list[int]) -> Step:
    a, b = rng.randint(2, 4), rng.randint(1, 30)
    steps: list[Callable[[], Step]] = [
        lambda: ([f"x.append({b})"], [*x, b]),
        lambda: (["x = sorted(x)"], sorted(x)),
        lambda: (["x = x[::-1]"], x[::-1]),
        lambda: ([f"x = [n * {a} for n in x]"], [n * a for n in x]),
        lambda: ([f"x = [n for n in x if n % {a} != 0]"], [n for n in x if n % a != 0]),
        lambda: ([f"x = x[{1}:] + x[:{1}]"], x[1:] + x[:1]),
        lambda: (
            ["x = [a + b for a, b in zip(x, x[1:])]"],
            [left + right for left, right in pairwise(x)],
        ),
        lambda: (
            [f"x = [n + i * {a} for i, n in enumerate(x)]"],
            [n + i * a for i, n in enumerate(x)],
        ),
    ]
    return rng.choice(steps)()


def program(rng: random.Random, steps: int, words: tuple[str, ...]) -> tuple[str, Any]:
    """Source of a program that leaves its result in x, and that result."""
    kind = rng.choice(("number", "number", "text", "list"))
    value: Any
    grow: Callable[[random.Random, Any], Step]
    if kind == "number":
        value, grow = rng.randint(1, 40), _number
    elif kind == "text":
        value, grow = rng.choice([word for word in words if len(word) > 3]), _text
    else:
        value, grow = [rng.randint(1, 30) for _ in range(rng.randint(3, 5))], _list
    start = f'"{value}"' if kind == "text" else str(value)
    lines = [f"x = {start}"]
    for _ in range(steps):
        source, value = grow(rng, value)
        lines += source
    return "\n".join(lines), value
