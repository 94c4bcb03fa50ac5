"""Held-out figures of one policy version: avg@k, pass@k, greedy, lengths; with 95 % intervals.

Invariants: a sample without a score counts neither as right nor as wrong (a task whose samples all
lack one is left out and counted, and so is a kind of which no sampled or no greedy answer has one);
solved means score 1; intervals are over tasks, not samples.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from tasks.train.rounds.estimates import Estimate, over_tasks, pass_at_k


class EvaluationConfig(BaseModel):
    """When and how the policy is measured on held-out tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(
        20, ge=1, description="Rollout steps between evaluations; version 0 and the last always."
    )
    samples: int = Field(1, ge=1, le=256, description="Samples per task at the temperature (k).")
    tasks: int = Field(
        0, ge=0, description="Held-out tasks of each kind that are asked; 0 asks all of them."
    )
    job_samples: int = Field(256, ge=1, le=8192, description="Samples of one evaluation job.")

    def due(self, version: int, last: int) -> bool:
        """Whether a policy version is measured."""
        return version % self.every == 0 or version == last


@dataclass(frozen=True)
class Answer:
    """One held-out sample as it was judged."""

    kind: str
    task_id: str
    greedy: bool
    score: float | None
    """None also where the node's answer was set aside."""
    tokens: int | None
    """None where there is no answer."""
    target: int
    """Wanted length in tokens; -1 where none was asked for."""


@dataclass(frozen=True)
class KindRates:
    """Figures of one kind of task."""

    tasks: int
    unscored: int
    """Samples without a score."""
    sampled: Estimate
    """avg@k at the sampling temperature."""
    passed: dict[int, Estimate]
    """k -> pass@k, for 1, 2, 4, ... up to the samples of a task."""
    greedy: Estimate
    tokens: float
    """Mean output tokens of the sampled answers."""
    length_error: float | None
    """Mean |target - tokens| of the sampled answers; None without targets."""


@dataclass(frozen=True)
class Evaluation:
    """One policy version on the held-out tasks."""

    version: int
    seconds: float
    """Since the start of the run's clock; parts of a resumed run add up."""
    kinds: dict[str, KindRates]
    left_out: dict[str, int]
    """Kinds without a figure -> their samples without a score."""

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(
            value["version"],
            value["seconds"],
            {kind: _rates(rates) for kind, rates in value["kinds"].items()},
            value["left_out"],
        )

    def figures(self, k: int) -> dict[str, float]:
        """Under the names of metrics; `k` is the number of samples of a task."""
        found: dict[str, float] = {}
        for kind, rates in self.kinds.items():
            found[f"eval/{kind}/avg@{k}"] = rates.sampled.mean
            found[f"eval/{kind}/greedy"] = rates.greedy.mean
            found |= {f"eval/{kind}/pass@{n}": rate.mean for n, rate in rates.passed.items()}
        return found


def _rates(value: dict[str, Any]) -> KindRates:
    estimates = {name: Estimate(**value[name]) for name in ("sampled", "greedy")}
    passed = {int(k): Estimate(**estimate) for k, estimate in value["passed"].items()}
    return KindRates(**value | estimates | {"passed": passed})


def evaluate(version: int, seconds: float, answers: Sequence[Answer]) -> Evaluation:
    """The figures of all kinds."""
    kinds: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        kinds[answer.kind].append(answer)
    scored = {(a.kind, a.greedy) for a in answers if a.score is not None}
    found: dict[str, KindRates] = {}
    left_out: dict[str, int] = {}
    for kind in sorted(kinds):
        if {(kind, False), (kind, True)} <= scored:
            found[kind] = _kind(kinds[kind])
        else:
            left_out[kind] = _unscored(kinds[kind])
    return Evaluation(version, seconds, found, left_out)


def _kind(answers: Sequence[Answer]) -> KindRates:
    sampled = [answer for answer in answers if not answer.greedy]
    by_task = _by_task(sampled)
    most = min(len(scores) for scores in by_task.values())
    ks = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    right = [(len(scores), sum(score == 1.0 for score in scores)) for scores in by_task.values()]
    lengths = [(a.tokens, a.target) for a in sampled if a.tokens is not None]
    targeted = [abs(target - tokens) for tokens, target in lengths if target >= 0]
    return KindRates(
        tasks=len(by_task),
        unscored=_unscored(answers),
        sampled=over_tasks([solved / count for count, solved in right]),
        passed={k: over_tasks([pass_at_k(n, solved, k) for n, solved in right]) for k in ks},
        greedy=over_tasks(
            [
                sum(score == 1.0 for score in scores) / len(scores)
                for scores in _by_task([a for a in answers if a.greedy]).values()
            ]
        ),
        tokens=math.fsum(tokens for tokens, _ in lengths) / len(lengths),
        length_error=math.fsum(targeted) / len(targeted) if targeted else None,
    )


def _unscored(answers: Sequence[Answer]) -> int:
    return sum(answer.score is None for answer in answers)


def _by_task(answers: Sequence[Answer]) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        if answer.score is not None:
            scores[answer.task_id].append(answer.score)
    return scores
