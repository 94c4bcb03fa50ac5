"""HumanEval as prime_rl_code: functions with tests that can be judged outside their process."""

import json
from collections.abc import Iterator
from itertools import islice

from tasks.collect.config import HumanEvalSource
from tasks.collect.humaneval_tests import NotLiteral, literal_cases, problems
from tasks.collect.rows import Raw

ORIGIN = "humaneval"


def read(source: HumanEvalSource) -> Iterator[Raw]:
    """The problems whose tests are literal, in the package's order."""
    return islice(_rows(), source.limit or None)


def _rows() -> Iterator[Raw]:
    for problem in problems().values():
        try:
            cases = literal_cases(problem["test"])
        except NotLiteral:
            continue  # a limit of this source, not a fault of the row
        tests = {
            "fn_name": problem["entry_point"],
            "inputs": ["\n".join(json.dumps(argument) for argument in case[0]) for case in cases],
            "outputs": [json.dumps(case[1]) for case in cases],
        }
        row = {
            "problem_id": problem["task_id"],
            "task_type": "prime_rl_code",
            "prompt": (
                f"Complete this Python function:\n```python\n{problem['prompt'].strip()}\n```\n"
                "Give the whole function, with its imports, in one ```python block."
            ),
            "verification_info": {"test_cases": json.dumps(tests)},
            "metadata": {"entry_point": problem["entry_point"], "tests": len(cases)},
            "gold": f"```python\n{problem['prompt']}{problem['canonical_solution']}\n```",
        }
        yield Raw(row, ORIGIN)
