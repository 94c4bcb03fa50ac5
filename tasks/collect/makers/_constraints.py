"""Constraints on a text that a verifier can check, each with a text that obeys it.

Constraints that every short text meets (no forbidden word, at most N words) are left out: they
would reward garbage. `size` is how many words, lines or parts are asked for.
"""

import json
import random
from collections.abc import Callable
from typing import Any

from tasks.collect.makers._words import ADJECTIVES, CITIES, NAMES, NOUNS, VERBS

Made = tuple[str, dict[str, Any], str]  # constraint in words, arguments, text that obeys


def _sentences(rng: random.Random, topic: str, count: int) -> list[str]:
    """Plain statements about the topic, without commas."""
    return [
        f"{rng.choice(('The', 'This', 'That'))} {topic} is {rng.choice(ADJECTIVES)}."
        for _ in range(count)
    ]


def _text(rng: random.Random, topic: str, count: int) -> str:
    return " ".join(_sentences(rng, topic, count))


def _lowercase(rng: random.Random, topic: str, size: int) -> Made:
    return "Use small letters only.", {}, _text(rng, topic, size).lower()


def _uppercase(rng: random.Random, topic: str, size: int) -> Made:
    return "Use capital letters only.", {}, _text(rng, topic, size).upper()


def _no_commas(rng: random.Random, topic: str, size: int) -> Made:
    return "Do not use any commas.", {}, _text(rng, topic, size)


def _end(rng: random.Random, topic: str, size: int) -> Made:
    phrase = f"{rng.choice(NAMES)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}."
    order = f"End with exactly these words: {phrase}"
    return order, {"end_phrase": phrase}, f"{_text(rng, topic, size)} {phrase}"


def _json(rng: random.Random, topic: str, size: int) -> Made:
    value = {"topic": topic, "words": rng.sample(ADJECTIVES, size)}
    return "Give the whole answer as valid JSON.", {}, json.dumps(value)


def _other_nouns(rng: random.Random, topic: str, count: int) -> list[str]:
    return rng.sample([noun for noun in NOUNS if noun not in topic.lower()], count)


def _keyword(rng: random.Random, topic: str, size: int) -> Made:
    word = _other_nouns(rng, topic, 1)[0]
    count = rng.randint(1, size + 1)
    text = " ".join(f"{line} A {word} is there." for line in _sentences(rng, topic, count))
    times = "once" if count == 1 else f"{count} times"
    return f'Use the word "{word}" exactly {times}.', {"word": word, "N": count}, text


def _keywords(rng: random.Random, topic: str, size: int) -> Made:
    words = _other_nouns(rng, topic, size + 1)
    quoted = ", ".join(f'"{word}"' for word in words)
    text = _text(rng, topic, size) + "".join(f" It has a {word}." for word in words)
    return f"Use the words {quoted}.", {"keyword_list": words}, text


def _letter(rng: random.Random, topic: str, size: int) -> Made:
    text = _text(rng, topic, size + 1)
    letter = rng.choice([letter for letter in "aeinorst" if text.count(letter) > 2])
    order = f'Use the small letter "{letter}" exactly {text.count(letter)} times.'
    return order, {"letter": letter, "N": text.count(letter)}, text


def _dividers(rng: random.Random, topic: str, size: int) -> Made:
    count = size + 1
    order = f"Write exactly {count} paragraphs, divided by a line with ***."
    return order, {"N": count}, "\n***\n".join(_sentences(rng, topic, count))


def _first_word(rng: random.Random, topic: str, size: int) -> Made:
    count = size + 1
    place = rng.randint(1, count)
    word = rng.choice(NAMES)
    lines = _sentences(rng, topic, count)
    lines[place - 1] = f"{word} was here."
    order = (
        f"Write exactly {count} paragraphs with an empty line between them. "
        f"Paragraph {place} starts with the word {word}."
    )
    return order, {"N": count, "first_word": word, "i": place}, "\n\n".join(lines)


def _word_count(rng: random.Random, topic: str, size: int) -> Made:
    count = rng.randint(5, 9) * (size + 1)
    words = _text(rng, topic, count // 5 + 1).split()
    how = rng.choice(("at least", "around"))
    return f"Use {how} {count} words.", {"N": count, "quantifier": how}, " ".join(words[:count])


def _sentence_count(rng: random.Random, topic: str, size: int) -> Made:
    count = size + 2
    order = f"Write at least {count} sentences."
    return order, {"N": count, "quantifier": "at least"}, _text(rng, topic, count)


def _postscript(rng: random.Random, topic: str, size: int) -> Made:
    text = f"{_text(rng, topic, size)}\nP.S. {rng.choice(NAMES)} says hello."
    return "Add a postscript that starts with P.S.", {"postscript_marker": "P.S."}, text


def _placeholders(rng: random.Random, topic: str, size: int) -> Made:
    names = _other_nouns(rng, topic, size)
    text = " ".join([*_sentences(rng, topic, 1), *(f"[{name}]" for name in names)])
    order = f"Use at least {size} placeholder(s) in square brackets, such as [name]."
    return order, {"N": size}, text


def _bullets(rng: random.Random, topic: str, size: int) -> Made:
    count = size + 1
    lines = [f"* {line}" for line in _sentences(rng, topic, count)]
    return f'Write exactly {count} lines that start with "* ".', {"N": count}, "\n".join(lines)


def _title(rng: random.Random, topic: str, size: int) -> Made:
    text = f"<<{topic}>>\n{_text(rng, topic, size)}"
    return "Put a title in double angular brackets, such as <<title>>.", {}, text


def _choice(rng: random.Random, topic: str, size: int) -> Made:
    options = [f"It is {word}" for word in rng.sample(ADJECTIVES, size + 1)]
    order = f"Answer with one of these: {' / '.join(options)}."
    return order, {"options": options}, f"{rng.choice(options)}."


def _highlights(rng: random.Random, topic: str, size: int) -> Made:
    text = " ".join(f"*{line}*" for line in _sentences(rng, topic, size))
    return f"Highlight at least {size} part(s) with stars, such as *this*.", {"N": size}, text


def _sections(rng: random.Random, topic: str, size: int) -> Made:
    count, name = size + 1, rng.choice(("Part", "Section", "Day"))
    lines = _sentences(rng, topic, count)
    text = "\n".join(f"{name} {place}\n{line}" for place, line in enumerate(lines, 1))
    order = f"Write at least {count} parts that start with {name} 1, {name} 2 and so on."
    return order, {"N": count, "section_splitter": name}, text


def _two_responses(rng: random.Random, topic: str, size: int) -> Made:
    first, second = (f"{rng.choice(CITIES)}. {_text(rng, topic, size)}" for _ in range(2))
    order = "Give two different answers, divided by ****** (six stars)."
    return order, {}, f"{first}\n******\nNo: {second}"


def _repeat(rng: random.Random, topic: str, size: int) -> Made:
    request = f"Tell {rng.choice(NAMES)} about the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}."
    order = f"Before anything else, repeat this sentence word for word: {request}"
    return order, {"original_prompt": request}, f"{request} {_text(rng, topic, size)}"


def _capital_words(rng: random.Random, topic: str, size: int) -> Made:
    count = size + 2
    words = " ".join(rng.choice(ADJECTIVES).upper() for _ in range(count))
    order = f"Write at least {count} words in capital letters."
    return order, {"N": count, "quantifier": "at least"}, f"The {topic}: {words}."


def _quotation(rng: random.Random, topic: str, size: int) -> Made:
    return "Put the whole answer in double quotes.", {}, f'"{_text(rng, topic, size)}"'


CONSTRAINTS: dict[str, Callable[[random.Random, str, int], Made]] = {
    "validate_lowercase": _lowercase,
    "validate_uppercase": _uppercase,
    "validate_no_commas": _no_commas,
    "validate_end": _end,
    "validate_json_format": _json,
    "verify_keyword_frequency": _keyword,
    "verify_keywords": _keywords,
    "verify_letter_frequency": _letter,
    "verify_paragraph_count": _dividers,
    "validate_paragraphs": _first_word,
    "validate_word_constraint": _word_count,
    "verify_sentence_constraint": _sentence_count,
    "verify_postscript": _postscript,
    "validate_placeholders": _placeholders,
    "verify_bullet_points": _bullets,
    "validate_title": _title,
    "validate_choice": _choice,
    "validate_highlighted_sections": _highlights,
    "validate_sections": _sections,
    "validate_two_responses": _two_responses,
    "validate_repeat_prompt": _repeat,
    "validate_frequency_capital_words": _capital_words,
    "validate_quotation": _quotation,
}
"""Name of the verifier's function -> how to ask for it, with arguments and an obeying text."""

PLAIN = (
    "validate_lowercase",
    "validate_uppercase",
    "validate_no_commas",
    "validate_end",
    "validate_json_format",
    "verify_keyword_frequency",
    "validate_quotation",
)
"""Those that one sentence can meet."""
