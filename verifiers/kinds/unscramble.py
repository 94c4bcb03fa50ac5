"""R6: `unscramble_sentence`, the longest run of sentences that also stands in the truth."""

import re

from verifiers import extract
from verifiers.errors import RowFault
from verifiers.kinds.base import Info, Kind, short_texts, text_of
from verifiers.result import Outcome, judged, no_answer

_SENTENCE = re.compile(r"^[ \t]*\d+\*?[.:](.*)$", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences in the order of their lines; the numbers are not looked at."""
    found = (match.strip() for match in _SENTENCE.findall(text))
    return [sentence for sentence in found if sentence]


def longest_run(a: list[str], b: list[str]) -> int:
    """Length of the longest block of consecutive items common to both lists."""
    best = 0
    previous = [0] * (len(b) + 1)
    for item in a:
        current = [0] * (len(b) + 1)
        for j, other in enumerate(b, 1):
            if item == other:
                current[j] = previous[j - 1] + 1
                best = max(best, current[j])
        previous = current
    return best


def _judge(answer: str, info: Info) -> Outcome:
    truth = sentences(text_of(info, "ground_truth"))
    if not truth:
        raise RowFault("verification_info.ground_truth has no numbered sentence")
    text = extract.last_tag(answer, "unscrambled_text")
    if text is None:
        return no_answer("no <unscrambled_text> pair")
    run = longest_run(sentences(text), truth)
    return judged(0 if run <= 1 else run / len(truth), f"run {run} of {len(truth)}")


_TRUTH = {"ground_truth": "1. A b.\n2. C d.\n3. E f."}
KIND = Kind(
    name="unscramble_sentence",
    version=1,
    task_types=("unscramble_sentence",),
    binary=False,
    judge=_judge,
    quick=short_texts,
    self_tests=(
        ("<unscrambled_text>1. A b.\n2. C d.\n3: E f.</unscrambled_text>", _TRUTH, 1.0),
        ("<unscrambled_text>1. E f.\n2. C d.\n3. A b.</unscrambled_text>", _TRUTH, 0.0),
    ),
)
