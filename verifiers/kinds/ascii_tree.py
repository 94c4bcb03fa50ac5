"""R7: `ascii_tree_formatting`, line-wise similarity with two form penalties."""

from difflib import SequenceMatcher

from verifiers import extract
from verifiers.kinds.base import Info, Kind, short_texts, text_of
from verifiers.kinds.unscramble import longest_run
from verifiers.result import Outcome, judged, no_answer


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").strip("\n").split("\n")


def _judge(answer: str, info: Info) -> Outcome:
    truth = _lines(text_of(info, "ground_truth"))
    text = extract.last_tag(answer, "ascii_formatted")
    if text is None:
        return no_answer("no <ascii_formatted> pair")
    lines = _lines(text)
    ratio = SequenceMatcher(None, lines, truth).ratio()
    score = 0.3 * ratio + 0.7 * longest_run(lines, truth) / len(truth)
    if any(not line[:1].isspace() and line != lines[0] for line in lines[1:]):
        score *= 0.5
    if not any("--" in line for line in lines[1:]):
        score *= 0.5
    return judged(round(score, 12))  # 0.3 + 0.7 is a little less than 1


_TREE = "a\n |-- b\n `-- c"
KIND = Kind(
    name="ascii_tree_formatting",
    version=1,
    task_types=("ascii_tree_formatting",),
    binary=False,
    judge=_judge,
    quick=short_texts,
    self_tests=(
        (f"<ascii_formatted>\n{_TREE}\n</ascii_formatted>", {"ground_truth": _TREE}, 1.0),
        ("<ascii_formatted>x</ascii_formatted>", {"ground_truth": _TREE}, 0.0),
    ),
)
