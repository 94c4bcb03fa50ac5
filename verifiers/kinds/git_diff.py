"""R9: `git_diff`, similarity of two normalised diffs."""

import re
from difflib import SequenceMatcher

from verifiers import extract
from verifiers.errors import RowFault
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.result import Outcome, judged, no_answer

_HUNK = re.compile(r"^(@@[^\n]*?@@).*$")


def normalise(diff: str) -> str:
    """Strip, drop `index ` lines, cut what follows the second `@@` of a hunk header."""
    lines = (line.removesuffix("\r") for line in diff.strip().split("\n"))
    return "\n".join(_HUNK.sub(r"\1", line) for line in lines if not line.startswith("index "))


def _judge(answer: str, info: Info) -> Outcome:
    golden = normalise(text_of(info, "golden_diff"))
    if not golden:
        raise RowFault("verification_info.golden_diff is empty once normalised")
    block = extract.last_block(answer, "diff")
    if block is None:
        return no_answer("no fenced block marked diff")
    return judged(SequenceMatcher(None, normalise(block), golden, autojunk=False).ratio())


def _small(answer: str, info: Info) -> bool:
    # autojunk is off, so a repetitive text costs the product of both lengths.
    return len(answer) <= 1500 and len(str(info.get("golden_diff"))) <= 1500


KIND = Kind(
    name="git_diff",
    version=1,
    task_types=("git_diff",),
    binary=False,
    judge=_judge,
    quick=_small,
    time_limit=20.0,
    self_tests=(
        ("```diff\n-a\n+b\n```", {"golden_diff": "-a\n+b"}, 1.0),
        ("```diff\nxyz\n```", {"golden_diff": "-a\n+b"}, 0.0),
        ("```diff\n-a\n+b\n```", {"golden_diff": ""}, None),
    ),
)
