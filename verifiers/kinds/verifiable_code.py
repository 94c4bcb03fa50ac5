"""`verifiable_code` of SYNTHETIC-1: `{language, test_cases}`, the share of tests that pass.

A test is `{type: "stdin_stdout", input, output}` or `{type: "function_call", fn_name, input: [...],
output}`. The tests run and compare as those of `prime_rl_code`; only Python has a sandbox here, so
rows of the other languages (the public ones are Rust, C++ and JavaScript) are unscored.
"""

import json
from collections.abc import Mapping
from typing import Any

from verifiers import extract, strict_json
from verifiers.errors import RowFault, SandboxBroken, VerifierFault
from verifiers.kinds import code
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.result import Outcome, judged, no_answer
from verifiers.sandbox import run

LANGUAGES = ("python", "rust", "cpp", "javascript")


def _tests(info: Info) -> list[Mapping[str, Any]]:
    tests = info.get("test_cases")
    if isinstance(tests, str):
        try:
            tests = strict_json.loads(tests)
        except strict_json.InvalidJson as error:
            raise RowFault(f"test_cases is not JSON: {error}") from error
    if not isinstance(tests, list) or not tests or len(tests) > code.MAX_TESTS:
        raise RowFault(f"test_cases must be a list of 1 to {code.MAX_TESTS} tests")
    for number, test in enumerate(tests, 1):
        if not isinstance(test, Mapping) or "input" not in test or "output" not in test:
            raise RowFault(f"test {number} needs input and output")
        called = test.get("type") == "function_call"
        if called and not isinstance(test["input"], list):
            raise RowFault(f"test {number}: the input of a call must be a list of arguments")
        if called and not str(test.get("fn_name")).isidentifier():
            raise RowFault(f"test {number}: fn_name must be a plain name")
    return tests


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=float)


def _failure(
    budget: code.Budget, source: str, test: Mapping[str, Any], where: str
) -> Outcome | None:
    if test.get("type") != "function_call":
        return code.program_test(budget, source, _text(test["input"]), _text(test["output"]), where)
    args, output = (json.dumps(test[key], default=float) for key in ("input", "output"))
    return code.call_test(budget, source, test["fn_name"], args, output, where)


def _judge(answer: str, info: Info) -> Outcome:
    language, tests = text_of(info, "language"), _tests(info)
    if language not in LANGUAGES:
        raise RowFault(f"language must be one of {', '.join(LANGUAGES)}, got {language!r:.40}")
    source = extract.last_block(answer)
    if source is None:
        return no_answer("no fenced block")
    if language != "python":
        raise VerifierFault(f"there is no sandbox for {language} here, only for python")
    budget, passed, first = code.Budget(), 0, ""
    try:
        for number, test in enumerate(tests, 1):
            where = f"test {number} of {len(tests)}"
            failed = _failure(budget, source, test, where)
            passed += failed is None
            first = first or (failed.detail if failed is not None else "")
            if (spent := budget.passed(where)) is not None:
                first = spent.detail
                break  # the tests that are left count as failed
    except SandboxBroken as error:
        raise VerifierFault(str(error)) from error
    return judged(passed / len(tests), f"{passed} of {len(tests)} tests passed; {first}")


_ADD = [
    {"type": "function_call", "fn_name": "add", "input": [1, 2], "output": 3},
    {"type": "function_call", "fn_name": "add", "input": [1, -1], "output": 0},
]
KIND = Kind(
    name="verifiable_code",
    version=1,
    task_types=("verifiable_code",),
    binary=False,
    judge=_judge,
    self_limiting=True,
    missing=lambda: run.availability()[1],
    settings=code.KIND.settings,
    self_tests=(
        (
            "```python\ndef add(a, b):\n    return 3\n```",
            {"language": "python", "test_cases": _ADD},
            0.5,
        ),
        ("no code", {"language": "python", "test_cases": _ADD}, 0.0),
        ("", {"language": "python", "test_cases": []}, None),
    ),
)
