"""R10: `reverse_text`, similarity to the text already reversed."""

from difflib import SequenceMatcher

from verifiers import extract
from verifiers.kinds.base import Info, Kind, short_texts, text_of
from verifiers.result import Outcome, judged, no_answer


def _judge(answer: str, info: Info) -> Outcome:
    truth = text_of(info, "ground_truth")
    text = extract.last_tag(answer, "answer")
    if text is None:
        return no_answer("no <answer> pair")
    return judged(SequenceMatcher(None, text.strip(), truth).ratio())


KIND = Kind(
    name="reverse_text",
    version=1,
    task_types=("reverse_text",),
    binary=False,
    judge=_judge,
    quick=short_texts,
    self_tests=(
        ("<answer>cba</answer>", {"ground_truth": "cba"}, 1.0),
        ("<answer>xyz</answer>", {"ground_truth": "cba"}, 0.0),
    ),
)
