"""Expressions over Python's standard library with drawn arguments, evaluated by calling it."""

import bisect
import collections
import heapq
import itertools
import random
import statistics
import textwrap
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tasks.collect.makers._words import ADJECTIVES, NOUNS

Made = tuple[str, str, Any]  # import line, expression, value as JSON keeps it


def _numbers(rng: random.Random, low: int = 0, high: int = 30) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(5, 8))]


def _bisect(rng: random.Random) -> Made:
    items, x = sorted(_numbers(rng)), rng.randint(0, 30)
    side = rng.choice((bisect.bisect_left, bisect.bisect_right))
    return "import bisect", f"bisect.{side.__name__}({items}, {x})", side(items, x)


def _counter(rng: random.Random) -> Made:
    text, n = "".join(rng.sample(NOUNS, 2)), rng.randint(2, 3)
    value = [list(pair) for pair in collections.Counter(text).most_common(n)]
    return "from collections import Counter", f'Counter("{text}").most_common({n})', value


def _heap(rng: random.Random) -> Made:
    items, n = _numbers(rng, -50, 50), rng.randint(2, 4)
    pick = rng.choice((heapq.nlargest, heapq.nsmallest))
    return "import heapq", f"heapq.{pick.__name__}({n}, {items})", pick(n, items)


def _accumulate(rng: random.Random) -> Made:
    items = _numbers(rng)
    value = list(itertools.accumulate(items, max))
    return "from itertools import accumulate", f"list(accumulate({items}, max))", value


def _groupby(rng: random.Random) -> Made:
    items = _numbers(rng, 0, 9)
    value = [[odd, len(list(group))] for odd, group in itertools.groupby(n % 2 for n in items)]
    expression = f"[[k, len(list(g))] for k, g in groupby(n % 2 for n in {items})]"
    return "from itertools import groupby", expression, value


def _pairs(rng: random.Random) -> Made:
    items = rng.sample(range(1, 20), 4)
    value = [sum(pair) for pair in itertools.combinations(items, 2)]
    expression = f"[sum(p) for p in combinations({items}, 2)]"
    return "from itertools import combinations", expression, value


def _median(rng: random.Random) -> Made:
    items = _numbers(rng, 0, 60)
    return "import statistics", f"statistics.median_low({items})", statistics.median_low(items)


def _wrap(rng: random.Random) -> Made:
    text, width = " ".join(rng.sample(ADJECTIVES + NOUNS, 6)), rng.randint(10, 18)
    return "import textwrap", f'textwrap.wrap("{text}", {width})', textwrap.wrap(text, width)


def _shorten(rng: random.Random) -> Made:
    text, width = " ".join(rng.sample(ADJECTIVES + NOUNS, 6)), rng.randint(14, 26)
    value = textwrap.shorten(text, width, placeholder="...")
    return "import textwrap", f'textwrap.shorten("{text}", {width}, placeholder="...")', value


def _fraction(rng: random.Random) -> Made:
    a, b, c, d = (rng.randint(1, 20) for _ in range(4))
    value = str(Fraction(a, b) + Fraction(c, d))
    return (
        "from fractions import Fraction",
        f"str(Fraction({a}, {b}) + Fraction({c}, {d}))",
        value,
    )


def _rotate(rng: random.Random) -> Made:
    items, n = _numbers(rng), rng.choice((-3, -2, -1, 1, 2, 3))
    queue = collections.deque(items, maxlen=4)
    queue.rotate(n)
    source = f"from collections import deque\nq = deque({items}, maxlen=4)\nq.rotate({n})"
    return source, "list(q)", list(queue)


def _split(rng: random.Random) -> Made:
    text = rng.choice((" ", "-", "--")).join(rng.sample(NOUNS, 4))
    n = rng.randint(1, 2)
    return "", f'"{text}".rsplit("-", {n})', text.rsplit("-", n)


_MAKERS: tuple[Callable[[random.Random], Made], ...] = (
    _bisect,
    _counter,
    _heap,
    _accumulate,
    _groupby,
    _pairs,
    _median,
    _wrap,
    _shorten,
    _fraction,
    _rotate,
    _split,
)


def expression(rng: random.Random) -> tuple[str, Any]:
    """Source that leaves its result in x, and that result."""
    head, body, value = rng.choice(_MAKERS)(rng)
    return "\n".join([*([head] if head else []), f"x = {body}"]), value
