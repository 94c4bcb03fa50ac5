"""pydantic_adherance: an object that a generated pydantic model accepts.

The maker draws fields and rules together with values that obey them, so the gold holds by
construction. Difficulty: `depth` nests models, `fields` sets the size of each, `rules` the number
of conditions between two fields in each.
"""

import json
import random
from collections.abc import Callable
from typing import Any

from tasks.collect.makers._fields import ABSENT, ALL, EASY, RULES
from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_range, row
from tasks.collect.makers._words import NAMES, NOUNS

Draw = Callable[[], dict[str, Any]]

_CHECK = """
    @model_validator(mode="after")
    def check_{place}(self):
        if not ({condition}):
            raise ValueError("{first} and {second} do not go together")
        return self
"""


def _one(key: str, draw: Callable[[], Any]) -> Draw:
    return lambda: {key: draw()}


def _both(keys: list[str], draw: Callable[[], list[Any]]) -> Draw:
    return lambda: dict(zip(keys, draw(), strict=True))


class _Source:
    """Collects model classes, innermost first, so that every name is defined before its use."""

    def __init__(self, rng: random.Random, fields: int, rules: int, easy: bool) -> None:
        self.rng = rng
        self.fields = fields
        self.rules = 0 if easy else rules
        self.easy = easy
        self.names = iter(
            noun.title() for noun in rng.sample([n for n in NOUNS if n != "field"], 40)
        )
        self.classes: list[str] = []

    def add(self, depth: int) -> tuple[str, Draw]:
        """Write one model with `depth` levels below it; its name and fitting objects of it."""
        name = next(self.names)
        keys = self.rng.sample(NOUNS, self.fields + 1 + 2 * self.rules)
        lines, checks = [], ""
        draws: list[Draw] = []
        if not self.easy and self.rng.random() < 0.3:
            lines.append('    model_config = ConfigDict(extra="forbid")')
        for key in keys[: self.fields]:
            annotation, draw = self.rng.choice(EASY if self.easy else ALL)(self.rng)
            lines.append(f"    {key}: {annotation}")
            draws.append(_one(key, draw))
        for place in range(self.rules):
            pair = keys[self.fields + 1 + 2 * place :][:2]
            annotations, condition, both = self.rng.choice(RULES)(self.rng, *pair)
            lines += [f"    {key}: {what}" for key, what in zip(pair, annotations, strict=True)]
            checks += _CHECK.format(
                place=place + 1, condition=condition, first=pair[0], second=pair[1]
            )
            draws.append(_both(pair, both))
        if depth:
            annotation, child = self._below(depth - 1)
            lines.append(f"    {keys[self.fields]}: {annotation}")
            draws.append(_one(keys[self.fields], child))
        self.classes.append(f"class {name}(BaseModel):\n" + "\n".join(lines) + "\n" + checks)
        return name, lambda: {
            key: value for draw in draws for key, value in draw().items() if value is not ABSENT
        }

    def _below(self, depth: int) -> tuple[str, Callable[[], Any]]:
        """A field that holds one, several or named objects of a further model."""
        name, draw = self.add(depth)
        low = self.rng.randint(1, 2)
        kind = self.rng.randrange(3)
        if kind == 0:
            return name, draw
        if kind == 1:
            annotation = f"list[{name}] = Field(min_length={low}, max_length={low + 1})"
            return annotation, lambda: [draw() for _ in range(low)]
        annotation = f"dict[str, {name}] = Field(min_length={low})"
        return annotation, lambda: {key: draw() for key in self.rng.sample(NAMES, low)}


def _imports(body: str) -> str:
    lines = []
    if ": date" in body:
        lines.append("from datetime import date")
    if "Literal[" in body:
        lines.append("from typing import Literal")
    optional = ("ConfigDict", "Field", "model_validator")
    names = ", ".join(["BaseModel", *(name for name in optional if f"{name}(" in body)])
    return "\n".join([*lines, f"from pydantic import {names}"])


def make(
    seed: int, index: int, *, depth: int = 1, fields: int = 3, rules: int = 1, easy: bool = False
) -> dict[str, Any]:
    """One model; `easy` keeps to bounded integers, short texts and booleans, without rules."""
    check_range("pydantic_adherance", "depth", depth, 0, 6)
    check_range("pydantic_adherance", "fields", fields, 1, 12)
    check_range("pydantic_adherance", "rules", rules, 0, 3)
    rng = stream("pydantic_adherance", seed, index)
    source = _Source(rng, fields, rules, easy)
    name, draw = source.add(depth)
    value = draw()
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
        rules=source.rules,
    )
