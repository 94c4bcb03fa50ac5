"""pydantic_adherance: an object that a generated pydantic model accepts.

The maker draws fields with constraints together with a value that fits, so the gold holds by
construction. `depth` nests models, `fields` sets the size of each.
"""

import json
import random
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_range, row
from tasks.collect.makers._words import ADJECTIVES, NAMES, NOUNS

Field = tuple[str, Any]  # annotation with default, fitting value


def _integer(rng: random.Random) -> Field:
    low = rng.randint(-20, 60)
    high = low + rng.randint(1, 60)
    return f"int = Field(ge={low}, le={high})", rng.randint(low, high)


def _multiple(rng: random.Random) -> Field:
    step = rng.randint(3, 15)
    low = rng.randint(1, 9) * step
    return f"int = Field(gt={low - 1}, multiple_of={step})", low + step * rng.randint(0, 5)


def _number(rng: random.Random) -> Field:
    low = rng.randint(0, 40)
    return f"float = Field(gt={low}, lt={low + 5})", low + rng.randint(1, 19) / 4


def _text(rng: random.Random) -> Field:
    word = rng.choice(NOUNS)
    low = rng.randint(1, len(word))
    return f"str = Field(min_length={low}, max_length={len(word) + rng.randint(0, 4)})", word


def _code(rng: random.Random) -> Field:
    letters, digits = rng.randint(1, 3), rng.randint(2, 4)
    value = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(letters))
    value += "-" + "".join(rng.choice("0123456789") for _ in range(digits))
    return f'str = Field(pattern=r"^[A-Z]{{{letters}}}-[0-9]{{{digits}}}$")', value


def _choice(rng: random.Random) -> Field:
    options = rng.sample(ADJECTIVES, rng.randint(2, 4))
    listed = ", ".join(f'"{option}"' for option in options)
    return f"Literal[{listed}]", rng.choice(options)


def _flag(rng: random.Random) -> Field:
    return "bool", rng.choice((True, False))


def _day(rng: random.Random) -> Field:
    day = f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    return "date", day


def _list(rng: random.Random) -> Field:
    low = rng.randint(1, 3)
    high = low + rng.randint(0, 3)
    count = rng.randint(low, high)
    inner, values = rng.choice(
        (
            ("int", [rng.randint(0, 99) for _ in range(count)]),
            ("str", [rng.choice(NAMES) for _ in range(count)]),
        )
    )
    return f"list[{inner}] = Field(min_length={low}, max_length={high})", values


def _mapping(rng: random.Random) -> Field:
    keys = rng.sample(NOUNS, rng.randint(1, 3))
    value = {key: rng.randint(0, 99) for key in keys}
    return f"dict[str, int] = Field(min_length={len(value)})", value


_EASY = (_integer, _text, _flag)
_ALL = (*_EASY, _multiple, _number, _code, _choice, _day, _list, _mapping)


class _Source:
    """Collects model classes, innermost first, so that every name is defined before its use."""

    def __init__(self, rng: random.Random, fields: int, easy: bool) -> None:
        self.rng = rng
        self.fields = fields
        self.easy = easy
        self.names = iter(
            noun.title() for noun in rng.sample([n for n in NOUNS if n != "field"], 40)
        )
        self.classes: list[str] = []

    def add(self, depth: int) -> tuple[str, dict[str, Any]]:
        """Write one model with `depth` levels below it; its name and a fitting object."""
        name = next(self.names)
        keys = self.rng.sample([noun for noun in NOUNS if noun != "date"], self.fields + 1)
        lines, value = [], {}
        for key in keys[: self.fields]:
            annotation, value[key] = self.rng.choice(_EASY if self.easy else _ALL)(self.rng)
            lines.append(f"    {key}: {annotation}")
        if depth:
            inner, first = self.add(depth - 1)
            if self.rng.random() < 0.5:
                annotation, value[keys[-1]] = inner, first
            else:
                annotation = f"list[{inner}] = Field(min_length=1)"
                value[keys[-1]] = [first]
            lines.append(f"    {keys[-1]}: {annotation}")
        self.classes.append(f"class {name}(BaseModel):\n" + "\n".join(lines) + "\n")
        return name, value


def _imports(body: str) -> str:
    lines = []
    if ": date" in body:
        lines.append("from datetime import date")
    if "Literal[" in body:
        lines.append("from typing import Literal")
    names = "BaseModel, Field" if "Field(" in body else "BaseModel"
    return "\n".join([*lines, f"from pydantic import {names}"])


def make(
    seed: int, index: int, *, depth: int = 1, fields: int = 3, easy: bool = False
) -> dict[str, Any]:
    """One model; `easy` keeps to bounded integers, short texts and booleans."""
    check_range("pydantic_adherance", "depth", depth, 0, 6)
    check_range("pydantic_adherance", "fields", fields, 1, 12)
    rng = stream("pydantic_adherance", seed, index)
    source = _Source(rng, fields, easy)
    name, value = source.add(depth)
    body = "\n\n".join(source.classes)
    config = f"{_imports(body)}\n\n\n{body}"
    prompt = (
        f"{config}\nWrite one JSON object that {name}.model_validate accepts. "
        "Give only the JSON object."
    )
    return row(
        "pydantic_adherance",
        seed,
        index,
        prompt,
        {"pydantic_config": config, "model_name": name},
        json.dumps(value),
        depth=depth,
        fields=fields,
    )
