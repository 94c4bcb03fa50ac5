"""ifeval: write a short text under one checkable constraint."""

import json
import random
from collections.abc import Callable
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_choice, check_range, row
from tasks.collect.makers._words import ADJECTIVES, CITIES, NAMES, NOUNS, VERBS

Made = tuple[str, dict[str, Any], str]  # constraint in words, arguments, text that obeys


def _lines(rng: random.Random, topic: str, count: int) -> list[str]:
    """Plain statements about the topic in small letters, without commas."""
    return [
        f"{rng.choice(('the', 'this', 'that'))} {topic} is {rng.choice(ADJECTIVES)}"
        for _ in range(count)
    ]


def _sentences(rng: random.Random, topic: str, count: int) -> list[str]:
    return [f"{line[0].upper()}{line[1:]}." for line in _lines(rng, topic, count)]


def _lowercase(rng: random.Random, topic: str, size: int) -> Made:
    text = " ".join(_sentences(rng, topic, size))
    return "Use small letters only.", {}, text.lower()


def _uppercase(rng: random.Random, topic: str, size: int) -> Made:
    text = " ".join(_sentences(rng, topic, size))
    return "Use capital letters only.", {}, text.upper()


def _no_commas(rng: random.Random, topic: str, size: int) -> Made:
    return "Do not use any commas.", {}, " ".join(_sentences(rng, topic, size))


def _end(rng: random.Random, topic: str, size: int) -> Made:
    phrase = f"{rng.choice(NAMES)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}."
    text = " ".join([*_sentences(rng, topic, size), phrase])
    return f"End with exactly these words: {phrase}", {"end_phrase": phrase}, text


def _json(rng: random.Random, topic: str, size: int) -> Made:
    value = {"topic": topic, "words": rng.sample(ADJECTIVES, size)}
    return "Give the whole answer as valid JSON.", {}, json.dumps(value)


def _keyword(rng: random.Random, topic: str, size: int) -> Made:
    word = rng.choice([noun for noun in NOUNS if noun not in topic.lower().split()])
    count = rng.randint(1, size + 1)
    text = " ".join(f"{line} A {word} is there." for line in _sentences(rng, topic, count))
    times = "once" if count == 1 else f"{count} times"
    return f'Use the word "{word}" exactly {times}.', {"word": word, "N": count}, text


def _paragraphs(rng: random.Random, topic: str, size: int) -> Made:
    count = size + 1
    text = "\n***\n".join(_sentences(rng, topic, count))
    order = f"Write exactly {count} paragraphs, divided by a line with ***."
    return order, {"N": count}, text


CONSTRAINTS: dict[str, Callable[[random.Random, str, int], Made]] = {
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
    topic = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} in {rng.choice(CITIES)}"
    order, arguments, gold = CONSTRAINTS[name](rng, topic, size)
    sentences = "a sentence" if size == 1 else "a few sentences"
    prompt = f"Write {sentences} about one {topic}. {order}"
    info = {"ground_truth": {"func_name": name, **arguments}}
    return row("ifeval", seed, index, prompt, info, gold, constraint=name)
