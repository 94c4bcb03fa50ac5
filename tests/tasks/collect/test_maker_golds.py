"""Golds score 1.0 through the real verifiers; near misses stand in test_near_misses.py."""

import json
import re

import pytest

from tasks.collect.config import HumanEvalSource
from tasks.collect.errors import SandboxNeeded
from tasks.collect.makers import MAKERS, _codeio, code_output_prediction
from tasks.collect.sources import read
from verifiers import score, score_many
from verifiers.sandbox import run_program


def _completion(text: str) -> str:
    return f"<think>\nhm\n</think>\n{text}"


def _score(row, text):
    return score(row["task_type"], _completion(text), row["verification_info"]).score


def _check_golds(rows):
    scores = score_many(
        [
            {
                "task_type": row["task_type"],
                "completion": _completion(row["gold"]),
                "verification_info": json.dumps(row["verification_info"]),
            }
            for row in rows
        ],
        workers=2,
    )
    for row, result in zip(rows, scores, strict=True):
        assert result.score == pytest.approx(1.0, abs=1e-9), (row["prompt"], row["gold"], result)


def test_golds_score_one(easy):
    rows = [
        make(seed, index, **knobs)
        for task_type, make in MAKERS.items()
        if task_type != "pydantic_adherance"
        for seed, knobs in ((0, {}), (5, easy[task_type]))
        for index in range(40)
    ]
    rows += [MAKERS["verifiable_math"](1, i, level=level) for level in (3, 4) for i in range(40)]
    rows += [MAKERS["complex_json_output"](1, i, level=level) for level in (3, 4) for i in range(9)]
    rows += [MAKERS["complex_json_output"](1, i, level=5) for i in range(40)]
    rows += [MAKERS["code_output_prediction"](1, i, kind="stdlib") for i in range(100)]
    rows += [MAKERS["git_diff"](1, i, level=3) for i in range(20)]
    _check_golds(rows)


@pytest.mark.slow
@pytest.mark.parametrize("task_type", MAKERS)
def test_a_thousand_golds_score_one(task_type, sandbox):
    _check_golds([MAKERS[task_type](0, index) for index in range(1000)])


@pytest.mark.slow
def test_results_of_human_eval_are_those_of_its_solutions(sandbox):
    for source, name, arguments, expected in code_output_prediction._real_cases():
        program = f"{source}\nimport json\nprint(json.dumps({name}(*{arguments!r})))"
        ended = run_program(program)
        assert json.loads(ended.stdout) == expected, (name, arguments)


def test_golds_of_models_score_one(easy, sandbox):
    make = MAKERS["pydantic_adherance"]
    rows = [make(0, i, depth=i % 3, fields=4, rules=i % 4) for i in range(12)]
    rows += [make(1, i, **easy["pydantic_adherance"]) for i in range(3)]
    _check_golds(rows)


def test_functions_of_a_data_set_get_their_results_from_the_sandbox(sandbox):
    make = MAKERS["code_output_prediction"]
    rows = [make(0, index, kind="codeio", level=1 + index % 3) for index in range(4)]
    assert rows[1] == make(0, 1, kind="codeio", level=2)
    assert len({row["prompt"] for row in rows}) == 4
    _check_golds(rows)


def test_without_a_sandbox_code_of_a_data_set_is_not_run(monkeypatch):
    # The one thing that cannot be real on a machine that has a sandbox.
    monkeypatch.setattr(_codeio, "availability", lambda: (False, "no user namespaces"))
    with pytest.raises(SandboxNeeded, match="no user namespaces"):
        MAKERS["code_output_prediction"](0, 0, kind="codeio")


@pytest.mark.parametrize("limit", [4, pytest.param(0, marks=pytest.mark.slow)])
def test_human_eval_golds_score_one(sandbox, limit):
    _check_golds([raw.row for raw in read(HumanEvalSource(limit=limit))])


def test_math_near_misses():
    for index in range(20):
        row = MAKERS["verifiable_math"](4, index)
        assert _score(row, f"\\boxed{{{row['verification_info']['ground_truth']}+1}}") == 0.0
        assert _score(row, row["verification_info"]["ground_truth"]) == 0.0


def test_diff_with_another_value_stays_below_one():
    row = MAKERS["git_diff"](0, 0, level=1)
    wrong = re.sub(r"(?m)^(\+\w+ = )\d+$", r"\g<1>1000", row["gold"])
    assert 0.7 < _score(row, wrong) < 1.0
