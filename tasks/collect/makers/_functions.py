"""Functions whose source is shown to a model and whose result is the truth, with arguments.

They are real code of this module: the maker prints them by `inspect.getsource` and calls them.
"""

import random
from collections.abc import Callable
from typing import Any

from tasks.collect.makers._words import NOUNS


def digit_sums(n: int) -> list[int]:
    sums = []
    while n > 9:
        n = sum(int(digit) for digit in str(n))
        sums.append(n)
    return sums


def collatz(n: int) -> dict[str, int]:
    steps, top = 0, n
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        top = max(top, n)
        steps += 1
    return {"steps": steps, "top": top}


def run_lengths(text: str) -> list[list[object]]:
    runs: list[list[object]] = []
    last, count = "", 0
    for letter in text:
        if letter == last:
            count += 1
        else:
            if count:
                runs.append([last, count])
            last, count = letter, 1
    if count:
        runs.append([last, count])
    return runs


def caesar(text: str, shift: int) -> str:
    return "".join(chr((ord(letter) - 97 + shift) % 26 + 97) for letter in text)


def group_by_length(words: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(str(len(word)), []).append(word)
    return groups


def merge_ranges(ranges: list[list[int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return merged


def josephus(n: int, k: int) -> list[int]:
    circle, out, at = list(range(1, n + 1)), [], 0
    while circle:
        at = (at + k - 1) % len(circle)
        out.append(circle.pop(at))
    return out


def longest_rise(numbers: list[int]) -> list[int]:
    best: list[int] = []
    run: list[int] = []
    for number in numbers:
        run = [*run, number] if run and number > run[-1] else [number]
        if len(run) > len(best):
            best = run
    return best


def change(amount: int, coins: list[int]) -> dict[str, int]:
    used = {}
    for coin in sorted(coins, reverse=True):
        if amount >= coin:
            used[str(coin)] = amount // coin
            amount %= coin
    return used


def balance(moves: list[int], limit: int) -> dict[str, object]:
    total, refused = 0, []
    for place, move in enumerate(moves):
        if abs(total + move) > limit:
            refused.append(place)
        else:
            total += move
    return {"total": total, "refused": refused, "full": abs(total) == limit}


def letter_table(text: str) -> dict[str, int]:
    table: dict[str, int] = {}
    for letter in text:
        table[letter] = table.get(letter, 0) + 1
    return {letter: count for letter, count in table.items() if count > 1}


def to_base(n: int, base: int) -> str:
    digits = ""
    while n:
        digits = "0123456789abcdef"[n % base] + digits
        n //= base
    return digits or "0"


def spiral(rows: int, columns: int, step: int) -> list[int]:
    grid = [[step * (row * columns + column) for column in range(columns)] for row in range(rows)]
    path = []
    while grid:
        path += grid.pop(0)
        grid = [list(line) for line in zip(*grid, strict=True)][::-1]
    return path


def _some(rng: random.Random, low: int, high: int, least: int = 4, most: int = 7) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(least, most))]


def _ranges(rng: random.Random) -> list[list[int]]:
    return [[low, low + rng.randint(1, 9)] for low in _some(rng, 0, 40)]


ARGUMENTS: dict[Callable[..., Any], Callable[[random.Random], list[Any]]] = {
    digit_sums: lambda rng: [rng.randint(100, 10**9)],
    collatz: lambda rng: [rng.randint(3, 400)],
    run_lengths: lambda rng: ["".join(rng.choice("ab") for _ in range(rng.randint(5, 12)))],
    caesar: lambda rng: [rng.choice(NOUNS), rng.randint(1, 25)],
    group_by_length: lambda rng: [rng.sample(NOUNS, rng.randint(3, 6))],
    merge_ranges: lambda rng: [_ranges(rng)],
    josephus: lambda rng: [rng.randint(4, 12), rng.randint(2, 40)],
    longest_rise: lambda rng: [_some(rng, 0, 50, 6, 10)],
    change: lambda rng: [rng.randint(20, 400), rng.sample((1, 3, 7, 10, 25, 50), 4)],
    balance: lambda rng: [_some(rng, -20, 20, 5, 9), rng.randint(10, 30)],
    letter_table: lambda rng: ["".join(rng.sample(NOUNS, 2))],
    to_base: lambda rng: [rng.randint(20, 5000), rng.randint(2, 16)],
    spiral: lambda rng: [rng.randint(2, 4), rng.randint(2, 5), rng.randint(2, 60)],
}
"""Each function with a way to draw its arguments."""
