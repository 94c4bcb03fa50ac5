"""unscramble_sentence: put numbered sentences into the only order that makes sense.

`clock` stories carry times of day; `chain` stories pass an object from hand to hand, so that the
order follows from the sentences alone.
"""

import random
from itertools import pairwise
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_choice, check_range, row
from tasks.collect.makers._words import ADJECTIVES, NAMES, NOUNS

_ACTIONS = (
    "{name} wakes up.",
    "{name} feeds the {noun}.",
    "{name} buys a {adjective} {noun}.",
    "{name} paints a {noun}.",
    "{name} looks for the {noun}.",
    "{name} sells the {adjective} {noun}.",
    "{name} cleans the {noun}.",
    "{name} draws a {adjective} {noun}.",
    "{name} hides the {noun}.",
    "{name} calls {other}.",
    "{name} meets {other}.",
    "{name} shows {other} a {noun}.",
)
_HAND_OVER = (
    "{giver} gives the {noun} to {taker}.",
    "{giver} hands {taker} the {noun}.",
    "{taker} gets the {noun} from {giver}.",
    "{giver} passes the {noun} on to {taker}.",
)


def _clock(rng: random.Random, count: int) -> list[str]:
    name, other = rng.sample(NAMES, 2)
    minutes = sorted(rng.sample(range(6 * 4, 22 * 4), count))
    templates = [rng.choice(_ACTIONS) for _ in range(count)]
    return [
        f"At {quarter // 4}:{quarter % 4 * 15:02d} "
        + template.format(
            name=name, other=other, noun=rng.choice(NOUNS), adjective=rng.choice(ADJECTIVES)
        )
        for quarter, template in zip(minutes, templates, strict=True)
    ]


def _chain(rng: random.Random, count: int) -> list[str]:
    people = rng.sample(NAMES, count + 1)
    noun = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    return [
        rng.choice(_HAND_OVER).format(giver=giver, taker=taker, noun=noun)
        for giver, taker in pairwise(people)
    ]


def _numbered(sentences: list[str]) -> str:
    return "\n".join(f"{place}. {sentence}" for place, sentence in enumerate(sentences, 1))


def make(
    seed: int,
    index: int,
    *,
    min_sentences: int = 4,
    max_sentences: int = 6,
    story: str = "any",
) -> dict[str, Any]:
    """One scrambled story; the scrambled order always differs from the right one."""
    check_range("unscramble_sentence", "min_sentences", min_sentences, 2, 30)
    check_range("unscramble_sentence", "max_sentences", max_sentences, min_sentences, 30)
    check_choice("unscramble_sentence", "story", story, ("any", "clock", "chain"))
    rng = stream("unscramble_sentence", seed, index)
    kind = rng.choice(("clock", "chain")) if story == "any" else story
    count = rng.randint(min_sentences, max_sentences)
    sentences = _clock(rng, count) if kind == "clock" else _chain(rng, count)
    shuffled = list(sentences)
    while shuffled == sentences:
        rng.shuffle(shuffled)
    truth = _numbered(sentences)
    prompt = (
        "Put these sentences in the order in which things happen.\n"
        f"{_numbered(shuffled)}\n"
        "Give only the sentences, numbered again from 1, one per line, "
        "between <unscrambled_text> and </unscrambled_text>."
    )
    gold = f"<unscrambled_text>\n{truth}\n</unscrambled_text>"
    return row(
        "unscramble_sentence",
        seed,
        index,
        prompt,
        {"ground_truth": truth},
        gold,
        story=kind,
        sentences=count,
    )
