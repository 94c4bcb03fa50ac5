"""Near misses of made tasks score exactly what the rules say, through the real verifiers."""

import json

import pytest
from near_misses import BROKEN, NEAR_MISSES

from tasks.collect.makers import MAKERS
from tasks.collect.makers._constraints import CONSTRAINTS
from verifiers.registry import judge_row

HARDER = {
    "code_output_prediction": {"kind": "stdlib"},
    "complex_json_output": {"level": 5},
    "pydantic_adherance": {"depth": 2, "rules": 2},
}


def _check(task_type, indices, knobs):
    make, misses = MAKERS[task_type], NEAR_MISSES[task_type]
    count = 0
    for row in (make(4, index, **knobs) for index in indices):
        for what, text, expected in misses(row):
            completion = f"<think>{row['gold']}</think>\n{text}"
            got = judge_row(task_type, completion, json.dumps(row["verification_info"]))
            assert got.score == pytest.approx(expected, abs=1e-6), (what, row["prompt"], text, got)
            count += 1
    return count


@pytest.mark.parametrize("task_type", sorted(set(NEAR_MISSES) - {"pydantic_adherance"}))
def test_near_misses(task_type):
    assert _check(task_type, range(25), {}) >= 50
    if task_type in HARDER:
        _check(task_type, range(5), HARDER[task_type])


def test_near_misses_of_models(sandbox):
    assert _check("pydantic_adherance", range(2), {"depth": 1, "rules": 1}) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("task_type", NEAR_MISSES)
def test_near_misses_of_many(task_type, sandbox):
    size = 60 if task_type == "pydantic_adherance" else 1000
    _check(task_type, range(size), {})
    _check(task_type, range(size // 10), HARDER.get(task_type, {}))


def test_every_constraint_has_a_near_miss():
    assert set(BROKEN) == set(CONSTRAINTS)
