"""R8: `formatask`, similarity of one or two texts, a tenth when the format differs."""

from difflib import SequenceMatcher

from verifiers import extract
from verifiers.kinds.base import Info, Kind, short_texts, text_of
from verifiers.result import Outcome, judged, no_answer

_WRAPPERS = (
    ("***", "***"),
    ("**", "**"),
    ("*", "*"),
    ("```", "```"),
    ('"', '"'),
    ("[", "]"),
    ("(", ")"),
    ("--", "--"),
    ("<", ">"),
)


def signature(text: str) -> str:
    """The first wrapper around the whole text, "upper", or nothing."""
    for left, right in _WRAPPERS:
        if len(text) >= len(left) + len(right) and text.startswith(left) and text.endswith(right):
            return left
    letters = [char for char in text if char.isalpha()]
    return "upper" if letters and all(char.isupper() for char in letters) else ""


def _similarity(answer: str, truth: str) -> float:
    ratio = SequenceMatcher(None, answer, truth).ratio()
    return ratio if signature(answer) == signature(truth) else ratio * 0.1


def _judge(answer: str, info: Info) -> Outcome:
    if "ground_truth1" in info or "ground_truth2" in info:
        pairs = [
            (f"extracted_formatted{n}", text_of(info, f"ground_truth{n}").strip()) for n in (1, 2)
        ]
    else:
        pairs = [("extracted_formatted", text_of(info, "ground_truth").strip())]
    found = [extract.last_tag(answer, tag) for tag, _ in pairs]
    if all(text is None for text in found):
        return no_answer("no " + " or ".join(f"<{tag}>" for tag, _ in pairs) + " pair")
    scores = [
        0.0 if text is None else _similarity(text.strip(), truth)
        for text, (_, truth) in zip(found, pairs, strict=True)
    ]
    return judged(0.0 if 0.0 in scores else sum(scores) / len(scores))


KIND = Kind(
    name="formatask",
    version=1,
    task_types=("formatask",),
    binary=False,
    judge=_judge,
    quick=short_texts,
    self_tests=(
        ("<extracted_formatted>**a b**</extracted_formatted>", {"ground_truth": "**a b**"}, 1.0),
        ("<extracted_formatted></extracted_formatted>", {"ground_truth": "**a b**"}, 0.0),
    ),
)
