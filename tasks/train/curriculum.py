"""What the nano models learn: task kinds with their real prompts, and a short worked thought each.

Invariants: a prompt is exactly the one that a run collects for the kind; training and held-out
tasks come from seeds far above those of the profiles (below one million), and no held-out prompt
is trained on.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import reasoning_gym

from tasks.train import demonstrations as think

ANSWER_LINE = "\nGive only the final answer between <answer> and </answer>."
TRAIN_SEED = 10_000_000
STRIDE = 1_000_000
"""Between the seeds of two training sets: reasoning-gym draws task i from seed + i."""
HELD_OUT_SEED = 20_000_000


@dataclass(frozen=True)
class NanoTask:
    """One task, and the completion that teaches it."""

    task_type: str
    prompt: str
    verification_info: dict[str, Any]
    completion: str

    def row(self) -> dict[str, Any]:
        """The task as a row for supervised training."""
        return {
            "messages": [{"role": "user", "content": self.prompt}],
            "completion": self.completion,
        }


@dataclass(frozen=True)
class Kind(ABC):
    """A source of tasks with its settings."""

    name: str
    think: Callable[[Mapping[str, Any]], str]
    settings: dict[str, Any]
    weight: float = 1.0
    """Its part of the training mix."""

    @abstractmethod
    def tasks(self, seed: int, count: int) -> list[NanoTask]:
        """The first `count` tasks of the seed."""


class GymKind(Kind):
    """A reasoning-gym generator."""

    def tasks(self, seed: int, count: int) -> list[NanoTask]:
        """The first `count` tasks of the seed."""
        data = reasoning_gym.create_dataset(self.name, seed=seed, size=count, **self.settings)
        return [self._task(data[index]) for index in range(count)]

    def completion(self, entry: Mapping[str, Any]) -> str:
        """The thought and the answer of an entry."""
        return f"<think>{self.think(entry)}</think><answer>{entry['answer']}</answer>"

    def _task(self, entry: dict[str, Any]) -> NanoTask:
        return NanoTask(
            task_type="reasoning_gym",
            prompt=entry["question"] + ANSWER_LINE,
            verification_info={
                "reasoning_gym_dataset": self.name,
                "reasoning_gym_entry": json.dumps(entry),
            },
            completion=self.completion(entry),
        )


class MakerKind(Kind):
    """One of the project's own makers."""

    def tasks(self, seed: int, count: int) -> list[NanoTask]:
        """The first `count` tasks of the seed."""
        make = import_module(f"tasks.collect.makers.{self.name}").make
        return [self._task(make(seed, index, **self.settings)) for index in range(count)]

    def _task(self, task: dict[str, Any]) -> NanoTask:
        return NanoTask(
            task_type=task["task_type"],
            prompt=task["prompt"],
            verification_info=task["verification_info"],
            completion=f"<think>{self.think(task)}</think>{task['gold']}",
        )


KINDS: tuple[Kind, ...] = (
    GymKind("spell_backward", think.think_spell, {"min_word_len": 3, "max_word_len": 8}),
    GymKind(
        "number_sorting",
        think.think_sort,
        {"min_numbers": 3, "max_numbers": 5, "max_decimals": 0, "min_value": 0, "max_value": 99},
    ),
    GymKind(
        "chain_sum",
        think.think_sum,
        {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2},
        weight=1.5,
    ),
    GymKind("letter_counting", think.think_letters, {"min_words": 2, "max_words": 4}),
    GymKind(
        "word_sequence_reversal", think.think_word_reversal, {"min_words": 2, "max_words": 4}, 0.5
    ),
    MakerKind("reverse_text", think.think_reverse, {"min_words": 1, "max_words": 2}, 0.5),
)


def held_out(kind: Kind, count: int) -> list[NanoTask]:
    """`count` tasks with different prompts; `training_tasks` leaves all of these prompts out."""
    distinct: dict[str, NanoTask] = {}
    for task in kind.tasks(HELD_OUT_SEED, 3 * count):
        distinct.setdefault(task.prompt, task)
    return list(distinct.values())[:count]


def training_tasks(count: int, held_out_count: int, seed: int) -> list[NanoTask]:
    """About `count` tasks of all kinds by weight, shuffled, without any held-out prompt."""
    total = sum(kind.weight for kind in KINDS)
    mixed: list[NanoTask] = []
    for kind in KINDS:
        reserved = {task.prompt for task in held_out(kind, held_out_count)}
        drawn = kind.tasks(TRAIN_SEED + STRIDE * seed, round(count * kind.weight / total))
        mixed += [task for task in drawn if task.prompt not in reserved]
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(mixed))
    return [mixed[index] for index in order]
