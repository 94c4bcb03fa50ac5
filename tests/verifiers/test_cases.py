"""The scoring rules, by the handed cases."""

import json
from pathlib import Path

import pytest

import verifiers

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "verifier_cases.jsonl").read_text().splitlines()
]


def check(case, got) -> None:
    expected = case["expect"]
    if "score_between" in expected:
        low, high = expected["score_between"]
        assert low <= got.score <= high, got
    elif expected["score"] is None:
        assert got.score is None, got
    else:
        assert got.score == pytest.approx(expected["score"], abs=1e-6), got
    if "status" in expected:
        assert got.status == expected["status"], got


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case, sandbox_here) -> None:
    got = verifiers.score(case["task_type"], case["completion"], case["verification_info"])
    check(case, got)


def test_cases_by_score_many(sandbox_here) -> None:
    quick = [case for case in CASES if case["id"] not in ("code-h09", "code-h15")]
    rows = [{**case, "verification_info": json.dumps(case["verification_info"])} for case in quick]
    for case, got in zip(quick, verifiers.score_many(rows, workers=2), strict=True):
        check(case, got)
