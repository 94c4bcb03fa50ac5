"""Which asserts count as plain data."""

import pytest

from tasks.collect.humaneval_tests import NotLiteral, literal_cases


def _check(*asserts: str) -> str:
    return "def check(candidate):\n" + "\n".join(f"    {line}" for line in asserts)


def test_literal_asserts_are_read():
    test = _check(
        "assert candidate([1, -2], 'a') == {'x': (1, 2)}, 'why'",
        "assert True, 'always'",
        "assert candidate(None) is True",
    )
    assert literal_cases(test) == [([[1, -2], "a"], {"x": [1, 2]}), ([None], True)]


@pytest.mark.parametrize(
    "line",
    [
        "assert abs(candidate(1) - 2) < 1e-6",
        "assert candidate((1, 2)) == 3",
        "assert candidate({1: 2}) == 3",
        "assert candidate(x) == 3",
        "assert candidate(1) == other(1)",
        "assert candidate(*[1]) == 3",
        "assert candidate(a=1) == 3",
        "assert candidate(1)",
        "for i in range(3): assert candidate(i) == i",
        "assert candidate(1e999) == 1",
        "assert candidate(__import__('os')) == 1",
    ],
)
def test_anything_else_is_refused(line):
    with pytest.raises(NotLiteral):
        literal_cases(_check("assert candidate(1) == 1", line))


def test_a_check_without_tests_is_refused():
    with pytest.raises(NotLiteral):
        literal_cases(_check("assert True"))
