"""R12: `ifeval`, constraint functions of the public data, each by its own definition.

An unknown function, a missing argument or an argument that means nothing is the row's
fault, never true. The functions live in ifeval_functions.py.
"""

import inspect
from importlib.metadata import version
from typing import Any

from verifiers.errors import RowFault
from verifiers.kinds.base import Info, Kind
from verifiers.kinds.ifeval_functions import FUNCTIONS, unseeded
from verifiers.result import Outcome, judged, no_answer


def _arguments(name: str, truth: dict[str, Any]) -> dict[str, Any]:
    parameters = list(inspect.signature(FUNCTIONS[name]).parameters)[1:]
    missing = [key for key in parameters if truth.get(key) is None]
    if missing:
        raise RowFault(f"{name} needs the argument {', '.join(missing)}")
    return {key: truth[key] for key in parameters}


def _judge(answer: str, info: Info) -> Outcome:
    truth = info.get("ground_truth")
    if not isinstance(truth, dict):
        raise RowFault(f"verification_info.ground_truth must be an object, got {truth!r:.80}")
    name = truth.get("func_name")
    if not isinstance(name, str) or name not in FUNCTIONS:
        raise RowFault(f"unknown constraint function {name!r:.80}; known: {', '.join(FUNCTIONS)}")
    arguments = _arguments(name, truth)
    if not answer.strip():
        # Silence keeps every rule that only forbids something, and answers nothing.
        return no_answer("the answer part is empty")
    return judged(FUNCTIONS[name](answer.strip(), **arguments), name)


def _short(answer: str, info: Info) -> bool:
    return len(answer) <= 20_000


KIND = Kind(
    name="ifeval",
    version=3,
    task_types=("ifeval",),
    binary=True,
    judge=_judge,
    quick=_short,
    settings={"libraries": [f"langdetect {version('langdetect')}"]},
    unsound=unseeded,
    self_tests=(
        ("all small.", {"ground_truth": {"func_name": "validate_lowercase"}}, 1.0),
        ("Not small.", {"ground_truth": {"func_name": "validate_lowercase"}}, 0.0),
        ("x", {"ground_truth": {"func_name": "no_such_function"}}, None),
    ),
)
