"""ifeval: write a short text under one checkable constraint."""

from typing import Any

from tasks.collect.makers._constraints import CONSTRAINTS, PLAIN
from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_choice, check_range, row
from tasks.collect.makers._words import ADJECTIVES, CITIES, NOUNS


def make(seed: int, index: int, *, constraint: str = "any", size: int = 2) -> dict[str, Any]:
    """One constraint over one topic; `constraint` is a function's name, `plain` or `any`."""
    check_choice("ifeval", "constraint", constraint, ("any", "plain", *CONSTRAINTS))
    check_range("ifeval", "size", size, 1, 20)
    rng = stream("ifeval", seed, index)
    pool = {"any": tuple(CONSTRAINTS), "plain": PLAIN}.get(constraint, (constraint,))
    name = rng.choice(pool)
    topic = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} in {rng.choice(CITIES)}"
    order, arguments, gold = CONSTRAINTS[name](rng, topic, size)
    amount = "a sentence" if size == 1 else "a few sentences"
    prompt = f"Write {amount} about one {topic}. {order}"
    info = {"ground_truth": {"func_name": name, **arguments}}
    return row("ifeval", seed, index, prompt, info, gold, constraint=name)
