"""reasoning-gym: procedural tasks by generator name.

The entry is stored as JSON text, which turns tuples into lists; the gold test scores the entry as
it comes out of storage, so a generator whose scorer does not survive that is caught there.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from tasks.collect.config import ReasoningGymSource
from tasks.collect.errors import BadOption, DeniedGenerator, UnknownName
from tasks.collect.rows import Bad, Raw
from tasks.collect.sources.worked import drawn, with_examples

DENIED = {
    "game_of_life_halting": "its scorer accepts garbage",
    "boxnet": "its scorer raises",
    "prime_factorization": "its scorer raises",
    "arc_agi": "its entries do not survive storage as JSON",
    "rearc": "its entries do not survive storage as JSON",
    "composite": "it only mixes other generators; name those",
    "codeio": "it executes code of a data set",
}
"""Generators of reasoning-gym 0.1.25 whose rewards cannot be trusted, with the reason."""

ANSWER_FORM = "\nGive only the final answer between <answer> and </answer>."


def read(source: ReasoningGymSource) -> Iterator[Raw | Bad]:
    """The generator's tasks in its own order."""
    if source.examples:
        return with_examples(_rows(source), source.size, source.examples)
    return _rows(source)


def _rows(source: ReasoningGymSource) -> Iterator[Raw | Bad]:
    size = drawn(source.size, source.examples)
    dataset = _open(source, size)
    name = source.generator
    for index in range(size):
        problem = f"{name}-{source.seed}-{index}"
        origin = f"reasoning_gym/{name}"
        try:
            entry = json.dumps(dataset[index], default=_plain, allow_nan=False)
            question, answer = json.loads(entry)["question"], json.loads(entry)["answer"]
        except Exception as error:  # any generator may raise anything; the others go on
            yield Bad({"problem_id": problem}, f"generator_error: {error!r}"[:400], origin)
            continue
        row = {
            "problem_id": problem,
            "task_type": "reasoning_gym",
            "prompt": f"{question}{ANSWER_FORM}",
            "verification_info": {"reasoning_gym_dataset": name, "reasoning_gym_entry": entry},
            "metadata": {"generator": name, "seed": source.seed, "index": index},
            "gold": None if answer is None else f"<answer>{answer}</answer>",
        }
        yield Raw(row, origin)


def _open(source: ReasoningGymSource, size: int) -> Any:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    name = source.generator
    if name in DENIED:
        raise DeniedGenerator(
            f"reasoning_gym generator {name!r} is not allowed: {DENIED[name]}. "
            f"Take another one of the {len(DATASETS) - len(DENIED)} generators."
        )
    if name not in DATASETS:
        raise UnknownName("generator", name, DATASETS.keys() - DENIED.keys(), "reasoning_gym")
    config = DATASETS[name][1]
    allowed = {field.name for field in dataclasses.fields(config)} - {"seed", "size"}
    for option in source.options:
        if option not in allowed:
            raise UnknownName("option", option, allowed, f"reasoning_gym generator {name}")
    try:
        return reasoning_gym.create_dataset(name, size=size, seed=source.seed, **source.options)
    except (AssertionError, TypeError, ValueError) as error:
        raise BadOption(
            f"reasoning_gym generator {name} refuses the options {source.options!r}: {error}. "
            f"Settings it knows: {', '.join(sorted(allowed))}."
        ) from error


def _plain(value: Any) -> Any:
    """JSON for the scalar types that generators put into their metadata."""
    if hasattr(value, "item"):  # a numpy scalar
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no JSON form")
