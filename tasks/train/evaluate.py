"""Held-out solve rates of a saved model, decoded by the project's own engine and verifiers.

Invariant: a figure depends on the model's files, the tasks and the seed only; each task has its
own sampling seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import verifiers
from infra.inference.protocol import Completion, Request, SamplingParams
from infra.inference.transformers_engine import TransformersEngine
from tasks.train.curriculum import NanoTask
from tasks.train.errors import UnscoredTask

BATCH = 128
MAX_TOKENS = 160


@dataclass(frozen=True)
class SolveRate:
    """Share of tasks with score 1, and the mean score."""

    tasks: int
    solved: float
    mean_score: float
    lengths: tuple[int, ...]
    """Output tokens of each completion, with the end token."""


def complete(
    engine: TransformersEngine, tasks: Sequence[NanoTask], temperature: float, seed: int = 0
) -> list[Completion]:
    """One completion per task; texts have the `<think>` that the template opened."""
    params = SamplingParams(temperature=temperature, max_tokens=MAX_TOKENS)
    requests = [
        Request(
            trace_id=str(index),
            prompt_ids=tuple(engine.render([{"role": "user", "content": task.prompt}])[0]),
            seed=(seed << 32) + index,
        )
        for index, task in enumerate(tasks)
    ]
    return [
        completion
        for start in range(0, len(requests), BATCH)
        for completion in engine.generate(requests[start : start + BATCH], params)
    ]


def solve_rate(
    engine: TransformersEngine, tasks: Sequence[NanoTask], temperature: float, seed: int = 0
) -> SolveRate:
    """Sampled (temperature above 0) or greedy (0) figures over the tasks."""
    completions = complete(engine, tasks, temperature, seed)
    values = []
    for task, completion in zip(tasks, completions, strict=True):
        score = verifiers.score(task.task_type, completion.text, task.verification_info)
        if score.score is None:
            raise UnscoredTask(task.task_type, score.detail)
        values.append(score.score)
    return SolveRate(
        tasks=len(values),
        solved=sum(value == 1.0 for value in values) / len(values),
        mean_score=sum(values) / len(values),
        lengths=tuple(len(completion.output_ids) for completion in completions),
    )


def load(directory: Path, model_id: str) -> TransformersEngine:
    """The engine for a saved nano model."""
    return TransformersEngine(directory, model_id, revision="local")
