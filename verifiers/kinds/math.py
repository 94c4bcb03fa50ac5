"""stub for bring-up"""
from verifiers.kinds.base import Info, Kind
from verifiers.result import Outcome, judged
def _judge(answer: str, info: Info) -> Outcome:
    return judged(0)
KIND = Kind(name="math", version=1, task_types=("verifiable_math",), binary=True, judge=_judge)
