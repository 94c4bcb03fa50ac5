"""The gold self-test: a task whose verifier rejects its gold, or takes garbage, is set aside.

Rewards of such a task would teach nonsense. Where the machine lacks what a kind needs (a sandbox, a
judge, a GPU), its tasks cannot be tested; they stay, and their metadata says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import verifiers
from verifiers import Score

GARBAGE = ("", "Blorp, QUX zzv; 17 Wibble frop.")
"""Nothing, and a text that no sensible task wants: it mixes letter cases and holds a comma."""

_OBJECT = '{"qzv_never": 17}'
GARBAGE_OF_KIND = {
    "pydantic_adherance": (_OBJECT,),
    "pydantic_adherence": (_OBJECT,),
    "complex_json_output": (_OBJECT,),
    "code_output_prediction": ('{"code_output": "qzv_never"}',),
    "prime_rl_code": ("```python\nprint('qzv_never')\n```",),
}
"""Garbage in the form that the kind reads. Other text ends before the row's own code or truth is
tried, so a model that never ends, or takes anything, would not show."""

SOFT_PASS = 0.7
"""Kinds with partial credit pass above this; binary ones at exactly 1."""

Task = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Whether the task stays, and the outcome: passed, no_gold, untested or the reason against."""

    keep: bool
    outcome: str


def check(tasks: Sequence[Task], workers: int | None = None) -> list[Verdict]:
    """One verdict per task. What failed by the machine's fault is tried a second time.

    Raises verifiers.BrokenVerifier when a verifier misjudges its own examples on this machine.
    """
    task_types = {task["task_type"] for task in tasks}
    verifiers.refuse_broken(task_types)
    lacking = {name: verifiers.missing(name) for name in task_types}
    verdicts = [Verdict(True, f"untested: {lacking[task['task_type']]}") for task in tasks]
    pending = [place for place, task in enumerate(tasks) if not lacking[task["task_type"]]]
    for _ in range(2):
        if not pending:
            break
        attempts = {place: _attempts(tasks[place]) for place in pending}
        rows = chain.from_iterable(attempts.values())
        scores = iter(list(verifiers.score_many(rows, workers=workers)))
        pending = []
        for place, tried in attempts.items():
            got = [next(scores) for _ in tried]
            verdicts[place] = _judge(tasks[place], got)
            if any(score.status == "verifier_error" for score in got):
                pending.append(place)
    return verdicts


def _garbage(task: Task) -> tuple[str, ...]:
    return (*GARBAGE, *GARBAGE_OF_KIND.get(task["task_type"], ()))


def _attempts(task: Task) -> list[dict[str, Any]]:
    texts = [*_garbage(task), *([task["gold"]] if task["gold"] is not None else [])]
    return [
        {
            "task_type": task["task_type"],
            "completion": f"<think>\nself-test\n</think>\n{text}",
            "verification_info": task["verification_info"],
        }
        for text in texts
    ]


def _judge(task: Task, scores: Sequence[Score]) -> Verdict:
    for score in scores:
        if score.score is None:
            return Verdict(False, f"{score.status}: {score.detail[:200]}")
    for text, score in zip(_garbage(task), scores, strict=False):
        if _passes(task, score):
            return Verdict(False, f"garbage_passes: {text!r} scores {score.score}")
    if task["gold"] is None:
        return Verdict(True, "no_gold")
    if not _is_one(scores[-1]):
        return Verdict(
            False, f"gold_fails: it scores {scores[-1].score}; {scores[-1].detail[:200]}"
        )
    return Verdict(True, "passed")


def _passes(task: Task, score: Score) -> bool:
    assert score.score is not None
    return _is_one(score) if task["binary"] else score.score > SOFT_PASS


def _is_one(score: Score) -> bool:
    """Partial credit adds up in floating point, so a full score may miss 1 by a rounding."""
    return score.score is not None and score.score >= 1.0 - 1e-9
