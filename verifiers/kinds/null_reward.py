"""`null_reward`: rows that are collected without a reward; every answer scores 0.

The public rule. It is a score and not an unscored row: such tasks take part in a run, and no answer
to them is ever published as right.
"""

from verifiers.kinds.base import Info, Kind, always_quick
from verifiers.result import Outcome, judged


def _judge(answer: str, info: Info) -> Outcome:
    return judged(0, "rows of this type carry no reward")


KIND = Kind(
    name="null_reward",
    version=1,
    task_types=("null_reward",),
    binary=True,
    judge=_judge,
    quick=always_quick,
    self_tests=(("anything", {}, 0.0),),
)
