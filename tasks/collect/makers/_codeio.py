"""Real functions from the codeio data of reasoning-gym, with inputs and results from the sandbox.

The code came with data: it is never run outside the sandbox. Code that is long, that imports more
than plain modules, or whose result could differ from run to run is left out, and so are calls with
fractions of many digits, which nobody can follow and which the last bit of a library would change.
"""

import ast
import gzip
import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

from tasks.collect.errors import MachineBusy, SandboxNeeded
from tasks.collect.makers._random import stream
from tasks.collect.makers._task import third
from verifiers import strict_json
from verifiers.sandbox import availability, run_program

_MODULES = frozenset(
    "bisect collections copy decimal fractions functools heapq itertools json math operator re "
    "statistics string typing".split()
)
_UNSTEADY = ("set(", "hash(", "id(", "input(", "open(", "time", "random", "print(")
_MAX_CODE, _MAX_INPUTS, _MAX_RESULT = 1500, 300, 200  # characters
_DIGITS = 6  # of a fraction, behind the point
_DRIVER = """
import json
from random import Random
inputs = generate_inputs(Random({seed!r}))
shown = json.dumps(inputs)
print(json.dumps([json.loads(shown), main_solution(**inputs)], allow_nan=False))
"""


@cache
def _functions() -> list[tuple[str, str]]:
    """(code, input generator) of every function that may be used."""
    spec = importlib.util.find_spec("reasoning_gym")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("reasoning_gym is not installed: pip install reasoning-gym")
    path = Path(spec.submodule_search_locations[0]) / "data" / "codeio.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    pairs = [(row["code_sample"].strip(), row["input_generator"].strip()) for row in rows]
    return [pair for pair in pairs if _usable(pair[0])]


def _usable(code: str) -> bool:
    if len(code) > _MAX_CODE or any(word in code for word in _UNSTEADY):
        return False
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.SetComp):
            return False
        if isinstance(node, ast.Import) and not {a.name for a in node.names} <= _MODULES:
            return False
        if isinstance(node, ast.ImportFrom) and node.module not in _MODULES:
            return False
    return "def main_solution(" in code


def functions(level: int) -> list[tuple[str, str]]:
    """(code, input generator) of the functions of a level."""
    return list(third(_functions(), level, lambda pair: len(pair[0])))


def function_call(seed: int, index: int, level: int) -> tuple[str, str, Any]:
    """Source, the call, and its result; the first function from a place of the seed that fits."""
    works, why_not = availability()
    if not works:
        raise SandboxNeeded(
            f"maker code_output_prediction: kind 'codeio' runs code of a data set and needs the "
            f"sandbox: {why_not}. Choose another kind."
        )
    found = functions(level)
    order = list(range(len(found)))
    stream("code_output_prediction/codeio", seed, level).shuffle(order)
    for offset in range(len(order)):
        code, generator = found[order[(index + offset) % len(order)]]
        ran = _run(code, generator, f"{seed}/{index}")
        if ran is not None:
            inputs, result = ran
            call = ", ".join(f"{name}={value!r}" for name, value in inputs.items())
            return code, f"main_solution({call})", result
    raise AssertionError("no function of the codeio data runs in the sandbox")


def _run(code: str, generator: str, seed: str) -> tuple[dict[str, Any], Any] | None:
    program = f"from random import Random\n{code}\n\n{generator}\n{_DRIVER.format(seed=seed)}"
    ended = run_program(program)
    if ended.starved:
        raise MachineBusy(
            "maker code_output_prediction: the machine gave a function of the codeio data no CPU, "
            "twice; to take another one would change the tasks. Try again when it is less busy."
        )
    if ended.exit_code or ended.out_of_time or ended.out_of_output:
        return None
    try:
        inputs, result = strict_json.loads(ended.stdout.decode("utf-8"), exact=False)
    except (ValueError, TypeError):
        return None
    if not isinstance(inputs, dict) or result is None:
        return None
    if len(json.dumps(inputs)) > _MAX_INPUTS or len(json.dumps(result)) > _MAX_RESULT:
        return None
    return (inputs, result) if _short_numbers([inputs, result]) else None


def _short_numbers(value: Any) -> bool:
    """No fraction has more digits than a person would write down."""
    if isinstance(value, dict):
        return all(map(_short_numbers, value.values()))
    if isinstance(value, list):
        return all(map(_short_numbers, value))
    return not isinstance(value, float) or round(value, _DIGITS) == value
