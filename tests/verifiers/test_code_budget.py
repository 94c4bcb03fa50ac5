"""prime_rl_code: a row may not hold a worker by the number of its tests, nor an answer by all."""

import json
import re

import pytest

import verifiers
from verifiers.kinds import code
from verifiers.registry import KINDS

ECHO = "```python\nprint(input())\n```"
SPIN = "```python\nimport time\nwhile time.process_time() < 0.4: pass\nprint(input())\n```"
SLEEP = "```python\nimport time\ntime.sleep(0.4)\nprint(input())\n```"
CALL = "```python\nimport time\ndef f(x):\n    time.sleep(0.4)\n    return x\n```"


def _score(answer: str, count: int, **more: str) -> verifiers.Score:
    texts = [str(n) for n in range(count)]
    tests = json.dumps({"inputs": texts, "outputs": texts, **more})
    return verifiers.score("prime_rl_code", answer, {"test_cases": tests})


@pytest.mark.parametrize("answer", ["", ECHO])
def test_too_many_tests_are_the_fault_of_the_row(answer):
    got = _score(answer, code.MAX_TESTS + 1)
    assert (got.score, got.status) == (None, "unverifiable")
    assert "1001 tests" in got.detail and "1000" in got.detail


def test_many_quick_tests_are_fine(sandbox_here):
    got = _score(ECHO, 100)
    assert got.score == 1, got
    assert _score(ECHO, 100, fn_name="f").score == 0


@pytest.mark.parametrize(
    ("answer", "more", "small"),
    [
        (SPIN, {}, "CPU_BUDGET"),
        (SLEEP, {}, "WALL_BUDGET"),
        (CALL, {"fn_name": "f"}, "WALL_BUDGET"),
    ],
    ids=["cpu", "wall", "wall_of_calls"],
)
def test_all_tests_share_a_budget(answer, more, small, sandbox_here, monkeypatch):
    assert _score(answer, 3, **more).score == 1
    monkeypatch.setattr(code, small, 0.7)
    got = _score(answer, 900, **more)
    assert (got.score, got.status) == (0, "timeout"), got
    assert re.match(r"test [12] of 900: .*together", got.detail), got


def test_several_tests_near_their_own_limit_fit():
    assert 10 * code.LIMITS.cpu_seconds <= code.CPU_BUDGET
    assert 8 * code.LIMITS.wall_seconds <= code.WALL_BUDGET


def test_the_limits_are_in_the_hash_of_the_settings():
    (kind,) = (kind for kind in KINDS if kind.name == "code")
    assert kind.settings["max_tests"] == code.MAX_TESTS
    assert kind.settings["cpu_budget"] == code.CPU_BUDGET
    assert kind.settings["wall_budget"] == code.WALL_BUDGET
