"""A multi-turn environment: prices are only to be had from a tool."""

import re

from datasets import Dataset

import verifiers as vf

PRICES = {"apple": 3, "pear": 4, "plum": 2}


def price(item: str) -> int:
    """Price of one piece.

    Args:
        item: name of the fruit, in the singular
    """
    return PRICES[item]


def load_environment(max_turns: int = 4) -> vf.Environment:
    rows = [
        {"question": f"What do {n} {item}s cost?", "answer": str(n * cost), "info": {"item": item}}
        for n, (item, cost) in enumerate(PRICES.items(), 2)
    ]

    async def right(completion, answer) -> float:
        numbers = re.findall(r"\d+", str(completion[-1].content or ""))
        return 1.0 if numbers and numbers[-1] == answer else 0.0

    return vf.ToolEnv(
        tools=[price],
        max_turns=max_turns,
        dataset=Dataset.from_list(rows),
        rubric=vf.Rubric(funcs=[right]),
    )
