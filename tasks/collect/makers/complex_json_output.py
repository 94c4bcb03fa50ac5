"""complex_json_output: build exactly one JSON object from a description in words.

Levels: 1 flat object of a few keys; 2 with lists and a nested object; 3 records told in sentences,
gathered into a list; 4 records to be grouped, sorted and counted; 5 an outline of objects and lists
within each other, whose texts need escapes. `size` is the number of keys or people.
"""

import json
import random
from collections.abc import Callable
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_range, row
from tasks.collect.makers._words import ADJECTIVES, CITIES, NAMES, NOUNS

Made = tuple[str, dict[str, Any]]


def _scalar(rng: random.Random) -> Any:
    return rng.choice(
        (
            lambda: rng.randint(0, 99),
            lambda: rng.choice(NOUNS),
            lambda: rng.choice(NAMES),
            lambda: rng.choice((True, False)),
        )
    )()


def _flat(rng: random.Random, size: int) -> Made:
    truth = {key: _scalar(rng) for key in rng.sample(NOUNS, size)}
    lines = [f'"{key}" is {json.dumps(value)}' for key, value in truth.items()]
    return "Write a JSON object: " + ", ".join(lines) + ".", truth


def _nested(rng: random.Random, size: int) -> Made:
    keys = rng.sample(NOUNS, size + 2)
    truth: dict[str, Any] = {}
    lines = []
    for key in keys[:size]:
        if rng.random() < 0.4:
            truth[key] = [rng.randint(-50, 50) for _ in range(rng.randint(2, 4))]
            items = ", ".join(map(str, truth[key]))
            lines.append(f'- "{key}" is the list of the numbers {items}, in this order')
        else:
            truth[key] = _scalar(rng)
            lines.append(f'- "{key}" is {json.dumps(truth[key])}')
    inner = {key: _scalar(rng) for key in rng.sample(ADJECTIVES, 2)}
    truth[keys[size]] = inner
    said = " and ".join(f'"{key}" is {json.dumps(value)}' for key, value in inner.items())
    lines.append(f'- "{keys[size]}" is an object in which {said}')
    truth[keys[size + 1]] = None
    lines.append(f'- "{keys[size + 1]}" is null')
    return "Write a JSON object with these keys and no others:\n" + "\n".join(lines), truth


def _people(rng: random.Random, size: int) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "city": rng.choice(CITIES),
            "age": rng.randint(18, 80),
            "items": rng.sample(NOUNS, rng.randint(1, 3)),
        }
        for name in rng.sample(NAMES, size)
    ]


def _told(person: dict[str, Any], rng: random.Random) -> str:
    items = " and ".join(f"a {item}" for item in person["items"])
    return rng.choice(
        (
            f"{person['name']} from {person['city']} is {person['age']} and has {items}.",
            f"{person['name']}, {person['age']}, lives in {person['city']} and owns {items}.",
            f"With {items}, {person['name']} ({person['age']}) comes from {person['city']}.",
        )
    )


def _records(rng: random.Random, size: int) -> Made:
    people = _people(rng, size)
    text = " ".join(_told(person, rng) for person in people)
    question = (
        f'{text}\nWrite a JSON object with the key "people": a list with one object for each '
        'person, in the order of the text, with the keys "name", "city", "age" (a number) and '
        '"items" (a list of single words, in the order of the text).'
    )
    return question, {"people": people}


def _grouped(rng: random.Random, size: int) -> Made:
    cities = rng.sample(CITIES, max(2, size // 2))
    people = [{**person, "city": rng.choice(cities)} for person in _people(rng, size)]
    text = " ".join(_told(person, rng) for person in people)
    groups: dict[str, Any] = {}
    for city in sorted({person["city"] for person in people}):
        there = sorted((p for p in people if p["city"] == city), key=lambda p: p["name"])
        groups[city] = {
            "names": [p["name"] for p in there],
            "oldest": max(p["age"] for p in there),
            "item_count": sum(len(p["items"]) for p in there),
        }
    question = (
        f'{text}\nWrite a JSON object with the keys "cities" and "people_count". "cities" is '
        'an object that maps each city of the text to an object with the keys "names" (the people '
        'there, in alphabetical order), "oldest" (the highest age) and "item_count" (how many '
        'things they have together). "people_count" is the number of people.'
    )
    return question, {"cities": groups, "people_count": size}


_RULES_OF_OUTLINE = (
    "Write the JSON object that this outline describes. Each line gives a key, or - for an item of "
    "a list, and then the value: object, list, true, false, null, number N, or text T, where T is "
    "the rest of the line, character by character. What belongs to an object or a list stands "
    "below it, two blanks further in."
)
_ODD = ('"', "\\", '\\"', "/", "{", "}]", ": ", "é", "ß", "€", "\\n", "'", " <b> ")


def _leaf(rng: random.Random) -> tuple[str, Any]:
    """A value in the words of the outline."""
    kind = rng.randrange(6)
    if kind < 3:
        text = "".join(rng.choice(NOUNS) + rng.choice(_ODD) for _ in range(rng.randint(1, 3)))
        text += rng.choice(ADJECTIVES)
        return f"text {text}", text
    if kind == 3:
        number = rng.choice((rng.randint(-999, 999), rng.randint(-4000, 4000) / 8))
        return f"number {number}", number
    word, value = rng.choice((("true", True), ("false", False), ("null", None)))
    return word, value


def _outline(rng: random.Random, size: int, depth: int) -> tuple[list[str], dict[str, Any]]:
    """Lines and value of an object whose first key goes `depth` levels deep."""
    lines: list[str] = []
    truth: dict[str, Any] = {}
    for place, key in enumerate(rng.sample(NOUNS, size)):
        if depth and (place == 0 or rng.random() < 0.3):
            below, truth[key], kind = _branch(rng, depth - 1)
            lines += [f"{key} {kind}", *(f"  {line}" for line in below)]
        else:
            said, truth[key] = _leaf(rng)
            lines.append(f"{key} {said}")
    return lines, truth


def _branch(rng: random.Random, depth: int) -> tuple[list[str], Any, str]:
    """Lines, value and name of an object, or of a list that starts with an object."""
    below, inner = _outline(rng, rng.randint(1, 3), depth)
    if rng.random() < 0.5:
        return below, inner, "object"
    leaves = [_leaf(rng) for _ in range(rng.randint(1, 2))]
    lines = ["- object", *(f"  {line}" for line in below), *(f"- {said}" for said, _ in leaves)]
    return lines, [inner, *(value for _, value in leaves)], "list"


def _deep(rng: random.Random, size: int) -> Made:
    lines, truth = _outline(rng, size, 3)
    return "\n".join([_RULES_OF_OUTLINE, *lines]), truth


_LEVELS: dict[int, tuple[Callable[[random.Random, int], Made], int, int]] = {
    1: (_flat, 2, 3),
    2: (_nested, 3, 5),
    3: (_records, 2, 4),
    4: (_grouped, 4, 7),
    5: (_deep, 3, 5),
}


def make(seed: int, index: int, *, level: int = 2, size: int = 0) -> dict[str, Any]:
    """One object; `size` 0 takes what is usual for the level."""
    check_range("complex_json_output", "level", level, 1, 5)
    check_range("complex_json_output", "size", size, 0, 40)
    rng = stream("complex_json_output", seed, index)
    build, low, high = _LEVELS[level]
    question, truth = build(rng, size or rng.randint(low, high))
    prompt = f"{question}\nGive only the JSON object."
    gold = json.dumps(truth, ensure_ascii=False)
    return row(
        "complex_json_output", seed, index, prompt, {"ground_truth": truth}, gold, level=level
    )
