"""ifeval: write a short text under one checkable constraint."""

import json
import random
from collections.abc import Callable
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_choice, check_range, row
from tasks.collect.makers._words import ADJECTIVES, CITIES, NAMES, NOUNS, VERBS

Made = tuple[str, dict[str, Any], str]  # constraint in words, arguments, text that obeys


def _line(rng: random.Random) -> str:
    return f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} is near the {rng.choice(NOUNS)}"


def _sentence(rng: random.Random) -> str:
    return f"{_line(rng).capitalize()}."


def _lowercase(rng: random.Random, size: int) -> Made:
    text = ". ".join(_line(rng) for _ in range(size)) + "."
    return "Use small letters only.", {}, text


def _uppercase(rng: random.Random, size: int) -> Made:
    text = ". ".join(_line(rng) for _ in range(size)) + "."
    return "Use capital letters only.", {}, text.upper()


def _no_commas(rng: random.Random, size: int) -> Made:
    return "Do not use any commas.", {}, " ".join(_sentence(rng) for _ in range(size))


def _end(rng: random.Random, size: int) -> Made:
    phrase = f"{rng.choice(NAMES)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}."
    text = " ".join([_sentence(rng) for _ in range(size)] + [phrase])
    return f"End with exactly these words: {phrase}", {"end_phrase": phrase}, text


def _json(rng: random.Random, size: int) -> Made:
    value = {key: rng.choice(ADJECTIVES) for key in rng.sample(NOUNS, size)}
    return "Give the whole answer as valid JSON.", {}, json.dumps(value)


def _keyword(rng: random.Random, size: int) -> Made:
    word = rng.choice(NOUNS)
    count = rng.randint(1, size + 1)
    text = " ".join(f"This {word} is {rng.choice(ADJECTIVES)}." for _ in range(count))
    times = "once" if count == 1 else f"{count} times"
    return f'Use the word "{word}" exactly {times}.', {"word": word, "N": count}, text


def _paragraphs(rng: random.Random, size: int) -> Made:
    count = size + 1
    text = "\n***\n".join(_sentence(rng) for _ in range(count))
    order = f"Write exactly {count} paragraphs, divided by a line with ***."
    return order, {"N": count}, text


CONSTRAINTS: dict[str, Callable[[random.Random, int], Made]] = {
    "validate_lowercase": _lowercase,
    "validate_uppercase": _uppercase,
    "validate_no_commas": _no_commas,
    "validate_end": _end,
    "validate_json_format": _json,
    "verify_keyword_frequency": _keyword,
    "verify_paragraph_count": _paragraphs,
}


def make(seed: int, index: int, *, constraint: str = "any", size: int = 2) -> dict[str, Any]:
    """One constraint over one topic; `size` grows the text that is asked for."""
    check_choice("ifeval", "constraint", constraint, ("any", *CONSTRAINTS))
    check_range("ifeval", "size", size, 1, 20)
    rng = stream("ifeval", seed, index)
    name = rng.choice(list(CONSTRAINTS)) if constraint == "any" else constraint
    order, arguments, gold = CONSTRAINTS[name](rng, size)
    topic = f"a {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} in {rng.choice(CITIES)}"
    sentences = "a sentence" if size == 1 else "a few sentences"
    prompt = f"Write {sentences} about {topic}. {order}"
    info = {"ground_truth": {"func_name": name, **arguments}}
    return row("ifeval", seed, index, prompt, info, gold, constraint=name)
