"""reverse_text: write a text backwards. Easy settings (one short word) suit very small models."""

from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_range, row
from tasks.collect.makers._words import ADJECTIVES, NAMES, NOUNS, VERBS

_SHORT = tuple(word for word in NOUNS + ADJECTIVES + VERBS if 3 <= len(word) <= 6)
_ALL = NOUNS + ADJECTIVES + VERBS + NAMES


def make(seed: int, index: int, *, min_words: int = 2, max_words: int = 4) -> dict[str, Any]:
    """One task. A single word is always one of 3 to 6 letters."""
    check_range("reverse_text", "min_words", min_words, 1, 40)
    check_range("reverse_text", "max_words", max_words, min_words, 40)
    rng = stream("reverse_text", seed, index)
    count = rng.randint(min_words, max_words)
    words = [rng.choice(_SHORT if count == 1 else _ALL) for _ in range(count)]
    text = " ".join(words)
    truth = text[::-1]
    prompt = (
        f"Reverse the text: {text}\nGive only the reversed text between <answer> and </answer>."
    )
    gold = f"<answer>{truth}</answer>"
    return row("reverse_text", seed, index, prompt, {"ground_truth": truth}, gold, words=len(words))
