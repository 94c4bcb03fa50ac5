"""Pass rates and intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.annotate.config import AnnotateConfig
from tasks.annotate.difficulty import Scored, difficulty_rows, passed, wilson

CONFIG = AnnotateConfig(min_scored=2)


@pytest.mark.parametrize(
    ("score", "binary", "expected"),
    [
        (1.0, True, True),
        (0.99, True, False),
        (0.0, True, False),
        (0.7, False, False),
        (0.71, False, True),
        (None, True, False),
        (None, False, False),
    ],
)
def test_passed(score, binary, expected):
    assert passed(score, binary, 0.7) is expected


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    # values of the Wilson score interval at 95 %, to 4 digits
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (1, 4, 0.0456, 0.6994)],
)
def test_wilson(k, n, low, high):
    assert wilson(k, n) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate(pair):
    k, n = pair
    low, high = wilson(k, n)
    assert 0.0 <= low <= k / n <= high <= 1.0


def test_wilson_refuses_nonsense():
    with pytest.raises(ValueError, match="k = 3, n = 2"):
        wilson(3, 2)


def test_unscored_is_in_no_denominator():
    planned = {f"t{i}": ("a", "m") for i in range(4)}
    rewards = [
        ("t0", Scored(1.0, True)),
        ("t1", Scored(0.0, True)),
        ("t2", Scored(None, True)),
    ]
    (row,) = difficulty_rows(planned, rewards, CONFIG)
    assert (row["n_requested"], row["n_scored"], row["k_passed"]) == (4, 2, 1)
    assert (row["avg_reward"], row["pass_rate"]) == (0.5, 0.5)


def test_too_few_scores_give_null_not_zero():
    planned = {f"t{i}": ("a", "m") for i in range(4)}
    (row,) = difficulty_rows(planned, [("t0", Scored(0.0, True))], CONFIG)
    assert row["n_scored"] == 1
    assert [row[name] for name in ("avg_reward", "pass_rate", "ci_low", "ci_high")] == [None] * 4


def test_rewards_of_others_do_not_count():
    rows = difficulty_rows({"t0": ("a", "m")}, [("stranger", Scored(1.0, True))], CONFIG)
    assert rows[0]["n_scored"] == 0


def test_order_of_rewards_does_not_matter():
    planned = {f"t{i}": ("a", "m") for i in range(4)}
    rewards = [(f"t{i}", Scored(value, False)) for i, value in enumerate([0.1, 0.2, 0.3, 0.7])]
    assert difficulty_rows(planned, rewards, CONFIG) == difficulty_rows(
        planned, rewards[::-1], CONFIG
    )
