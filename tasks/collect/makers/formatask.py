"""formatask: copy a marked part of a text with its marks, or put given marks around a part.

Single tasks use <extracted_formatted>; dual ones <extracted_formatted1> and <extracted_formatted2>.
"""

import random
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_choice, check_range, row
from tasks.collect.makers._words import ADJECTIVES, CITIES, NAMES, NOUNS

_MARKS: dict[str, tuple[str, str]] = {
    "double stars": ("**", "**"),
    "triple stars": ("***", "***"),
    "single stars": ("*", "*"),
    "double quotes": ('"', '"'),
    "square brackets": ("[", "]"),
    "round brackets": ("(", ")"),
    "double dashes": ("--", "--"),
    "angle brackets": ("<", ">"),
    "triple backticks": ("```", "```"),
}
_SENTENCES = (
    "The sign at the door says {part}.",
    "{name} found {part} on the road.",
    "In {city} they call it {part}.",
    "Ask {name} about {part} first.",
    "The last line of the note was {part}.",
    "Nobody in {city} wanted {part}.",
)


def _phrase(rng: random.Random, words: int) -> str:
    return " ".join([*rng.choices(ADJECTIVES, k=words - 1), rng.choice(NOUNS)])


def _wrap(style: str, phrase: str) -> str:
    if style == "upper case":
        return phrase.upper()
    before, after = _MARKS[style]
    return f"{before}{phrase}{after}"


def _sentence(rng: random.Random, part: str) -> str:
    return rng.choice(_SENTENCES).format(part=part, name=rng.choice(NAMES), city=rng.choice(CITIES))


def _copy_text(
    rng: random.Random, words: int, styles: list[str], extra: int
) -> tuple[str, list[str]]:
    """Sentences that hold one part per style, and `extra` unmarked ones between them."""
    truths = [_wrap(style, _phrase(rng, words)) for style in styles]
    parts = truths + [_phrase(rng, words) for _ in range(extra)]
    rng.shuffle(parts)
    return " ".join(_sentence(rng, part) for part in parts), truths


def make(
    seed: int,
    index: int,
    *,
    task: str = "any",
    words: int = 2,
    extra_sentences: int = 2,
    answers: str = "any",
) -> dict[str, Any]:
    """One task; `task` is copy (marks stand in the text) or apply (marks are asked for)."""
    check_choice("formatask", "task", task, ("any", "copy", "apply"))
    check_choice("formatask", "answers", answers, ("any", "single", "dual"))
    check_range("formatask", "words", words, 1, 12)
    check_range("formatask", "extra_sentences", extra_sentences, 0, 20)
    rng = stream("formatask", seed, index)
    what = rng.choice(("copy", "apply")) if task == "any" else task
    dual = rng.random() < 0.5 if answers == "any" else answers == "dual"
    styles = rng.sample([*_MARKS, "upper case"], 2 if dual else 1)
    if what == "copy":
        text, truths = _copy_text(rng, words, styles, extra_sentences)
        asked = [
            "the part in upper case" if style == "upper case" else f"the part in {style}"
            for style in styles
        ]
        order = f"Copy {' and '.join(asked)} exactly, with the marks."
    else:
        phrases = [_phrase(rng, words) for _ in styles]
        text = " ".join(
            _sentence(rng, part)
            for part in phrases + [_phrase(rng, words) for _ in range(extra_sentences)]
        )
        truths = [_wrap(style, phrase) for style, phrase in zip(styles, phrases, strict=True)]
        asked = [f"'{phrase}' in {style}" for style, phrase in zip(styles, phrases, strict=True)]
        order = f"Write {' and '.join(asked)}."
    names = ["1", "2"] if dual else [""]
    tags = [f"<extracted_formatted{n}> and </extracted_formatted{n}>" for n in names]
    where = " and the second between ".join(tags)
    prompt = f"{text}\n{order}\nGive {'the first' if dual else 'it'} between {where}."
    gold = "\n".join(
        f"<extracted_formatted{n}>{truth}</extracted_formatted{n}>"
        for n, truth in zip(names, truths, strict=True)
    )
    info = {f"ground_truth{n}": truth for n, truth in zip(names, truths, strict=True)}
    return row("formatask", seed, index, prompt, info, gold, task=what, dual=dual, styles=styles)
