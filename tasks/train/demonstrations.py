"""Short worked thoughts: one function per task kind, from a task's data to the text of the thought.

Invariant: a thought holds nothing that the prompt does not give; it ends where the answer is known.
"""

import re
from collections.abc import Mapping
from typing import Any


def think_spell(entry: Mapping[str, Any]) -> str:
    """The letters from the back."""
    word: str = entry["metadata"]["word"]
    return word[::-1]


def think_sort(entry: Mapping[str, Any]) -> str:
    """The numbers in order, without the quotes and decimals of the answer."""
    return " ".join(number.removesuffix(".0") for number in entry["metadata"]["sorted_numbers"])


def think_sum(entry: Mapping[str, Any]) -> str:
    """Running totals from left to right."""
    first, *rest = re.findall(r"(^|[+-]) ?(\d+)", entry["metadata"]["expression"])
    total = int(first[1])
    steps = []
    for sign, digits in rest:
        before = total
        total += int(sign + digits)
        steps.append(f"{before}{sign}{digits}={total}")
    return " ".join(steps)


def think_letters(entry: Mapping[str, Any]) -> str:
    """Each word with the count so far."""
    letter = entry["metadata"]["target_letter"]
    count = 0
    parts = []
    for word in entry["metadata"]["span"]:
        count += word.lower().count(letter)
        parts.append(f"{word} {count}")
    return " ".join(parts)


def think_word_reversal(entry: Mapping[str, Any]) -> str:
    """How many words, and which is last."""
    words = entry["answer"].split(", ")
    return f"{len(words)} {words[0]}"


def think_reverse(task: Mapping[str, Any]) -> str:
    """The letters from the back."""
    truth: str = task["verification_info"]["ground_truth"]
    return truth
