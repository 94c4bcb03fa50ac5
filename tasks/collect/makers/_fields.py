"""Fields and rules of generated pydantic models, each with a way to draw values that obey it."""

import random
from collections.abc import Callable
from typing import Any

from tasks.collect.makers._words import ADJECTIVES, NAMES, NOUNS

ABSENT = object()
"""Drawn for a field that the object may leave out, and does."""

Field = tuple[str, Callable[[], Any]]  # annotation with default, fitting value
Rule = tuple[list[str], str, Callable[[], list[Any]]]  # annotations, condition, fitting values


def _integer(rng: random.Random) -> Field:
    low = rng.randint(-20, 60)
    high = low + rng.randint(1, 60)
    return f"int = Field(ge={low}, le={high})", lambda: rng.randint(low, high)


def _text(rng: random.Random) -> Field:
    word = rng.choice(NOUNS)
    low = rng.randint(1, len(word))
    return (
        f"str = Field(min_length={low}, max_length={len(word) + rng.randint(0, 4)})",
        lambda: word,
    )


def _flag(rng: random.Random) -> Field:
    return "bool", lambda: rng.choice((True, False))


def _multiple(rng: random.Random) -> Field:
    step = rng.randint(3, 15)
    low = rng.randint(1, 9) * step
    annotation = f"int = Field(gt={low - 1}, multiple_of={step})"
    return annotation, lambda: low + step * rng.randint(0, 5)


def _number(rng: random.Random) -> Field:
    low = rng.randint(0, 40)
    return f"float = Field(gt={low}, lt={low + 5})", lambda: low + rng.randint(1, 19) / 4


def _code(rng: random.Random) -> Field:
    letters, digits = rng.randint(1, 3), rng.randint(2, 4)

    def draw() -> str:
        head = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(letters))
        return f"{head}-" + "".join(rng.choice("0123456789") for _ in range(digits))

    return f'str = Field(pattern=r"^[A-Z]{{{letters}}}-[0-9]{{{digits}}}$")', draw


def _choice(rng: random.Random) -> Field:
    options = rng.sample(ADJECTIVES, rng.randint(2, 4))
    listed = ", ".join(f'"{option}"' for option in options)
    return f"Literal[{listed}]", lambda: rng.choice(options)


def _day(rng: random.Random) -> Field:
    return (
        "date",
        lambda: f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
    )


def _list(rng: random.Random) -> Field:
    low = rng.randint(1, 3)
    high = low + rng.randint(0, 3)
    inner = rng.choice(("int", "str"))

    def draw() -> Any:
        return rng.randint(0, 99) if inner == "int" else rng.choice(NAMES)

    annotation = f"list[{inner}] = Field(min_length={low}, max_length={high})"
    return annotation, lambda: [draw() for _ in range(rng.randint(low, high))]


def _mapping(rng: random.Random) -> Field:
    low = rng.randint(1, 3)
    return f"dict[str, int] = Field(min_length={low})", lambda: {
        key: rng.randint(0, 99) for key in rng.sample(NOUNS, low)
    }


def _optional(rng: random.Random) -> Field:
    low = rng.randint(0, 60)
    annotation = f"int | None = Field(default=None, ge={low})"
    return annotation, lambda: rng.choice((ABSENT, None, low, low + rng.randint(1, 30)))


EASY = (_integer, _text, _flag)
ALL = (*EASY, _multiple, _number, _code, _choice, _day, _list, _mapping, _optional)


def _below(rng: random.Random, first: str, second: str) -> Rule:
    def draw() -> list[Any]:
        low = rng.randint(0, 50)
        return [low, low + rng.randint(1, 20)]

    return ["int", "int"], f"self.{first} < self.{second}", draw


def _total(rng: random.Random, first: str, second: str) -> Rule:
    low = rng.randint(2, 4)

    def draw() -> list[Any]:
        parts = [rng.randint(1, 40) for _ in range(rng.randint(low, low + 2))]
        return [parts, sum(parts)]

    numbers = f"list[int] = Field(min_length={low})"
    return [numbers, "int"], f"sum(self.{first}) == self.{second}", draw


def _count(rng: random.Random, first: str, second: str) -> Rule:
    def draw() -> list[Any]:
        names = rng.sample(NAMES, rng.randint(1, 4))
        return [names, len(names)]

    return ["list[str]", "int"], f"len(self.{first}) == self.{second}", draw


def _distinct(rng: random.Random, first: str, second: str) -> Rule:
    low = rng.randint(2, 4)

    def draw() -> list[Any]:
        numbers = rng.sample(range(100), low)
        return [numbers, max(numbers)]

    condition = f"len(set(self.{first})) == len(self.{first}) and self.{second} in self.{first}"
    return [f"list[int] = Field(min_length={low})", "int"], condition, draw


RULES = (_below, _total, _count, _distinct)
"""Conditions over two fields of one model."""
