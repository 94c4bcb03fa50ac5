"""Group advantages: published values, and the groups that teach nothing."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.train.objective.advantages import group_advantages, most_spread
from tasks.train.objective.errors import BadReward
from tasks.train.objective.filters import has_signal

FORMS = ("std", "batch_std", "none", "intellect2")


def close(values: list[float | None], expected: list[float]) -> bool:
    return values == pytest.approx(expected, abs=1e-5)


def test_the_mean_is_taken_off_before_the_division() -> None:
    (values,) = group_advantages([[1, 0, 0, 1]], "intellect2")
    assert close(values, [0.8660246, -0.8660246, -0.8660246, 0.8660246])
    assert values[0] == 0.5 / (np.std([1, 0, 0, 1], ddof=1) + 1e-6)


def test_group_batch_and_no_scaling_are_not_mixed_up() -> None:
    groups = [[1.0, 0.0], [1.0, 1.0]]
    own, batch, plain = (group_advantages(groups, form) for form in ("std", "batch_std", "none"))
    assert close(own[0], [0.70711, -0.70711]) and own[1] == [0, 0]
    assert close(batch[0], [1, -1]) and batch[1] == [0, 0]
    assert plain == [[0.5, -0.5], [0, 0]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("reward", "size"), [(0.5, 4), (0.9, 12), (0.3, 7), (0.1, 64), (0.7, 64), (1 / 3, 48), (1, 1)]
)
def test_a_constant_group_is_exactly_zero_and_has_no_signal(
    form: str, reward: float, size: int
) -> None:
    (values, others) = group_advantages([[reward] * size, [0.0, 1.0]], form)
    assert values == [0.0] * size
    assert not has_signal(values) and has_signal(others)


def test_rewards_that_differ_by_rounding_alone_are_the_same() -> None:
    assert group_advantages([[0.1 + 0.2, 0.3, 0.3]], "std") == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_without_score_is_in_no_statistic(form: str) -> None:
    holes = group_advantages([[1.0, None, 0.0, 1.0], [None, 1.0], [None, None]], form)
    whole = group_advantages([[1.0, 0.0, 1.0], [1.0], []], form)
    assert holes == [[whole[0][0], None, *whole[0][1:]], [None, 0.0], [None, None]]
    assert not has_signal(holes[1]) and not has_signal(holes[2])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_named(value: float) -> None:
    with pytest.raises(BadReward, match="reward 1 of group 2"):
        group_advantages([[0.0], [1.0], [0.0, value]], "std")


@given(
    st.lists(st.lists(st.floats(-50, 50), max_size=20), max_size=4),
    st.sampled_from(FORMS),
)
def test_advantages_of_a_group_sum_to_zero(groups: list[list[float]], form: str) -> None:
    for rewards, values in zip(groups, group_advantages(groups, form), strict=True):
        assert abs(sum(values)) < 1e-5 * max(1.0, *map(abs, values), 1.0)
        # the order of rewards is the order of advantages, and the size of n bounds them
        order = np.argsort(rewards, kind="stable")
        assert np.all(np.diff(np.array(values)[order]) >= 0)
        if form in ("std", "intellect2") and values:
            assert max(map(abs, values)) <= (len(values) - 1) / len(values) ** 0.5 + 1e-9


@given(
    st.lists(
        st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0]) | st.floats(-2, 2), min_size=2, max_size=9
    ),
    st.integers(2, 9),
)
def test_what_is_kept_of_a_group_has_the_greatest_variance_of_all_choices(rewards, most):
    kept = [reward for reward in most_spread(rewards, most) if reward is not None]
    size = min(most, len(rewards))
    assert len(kept) == size
    best = max(np.var(choice) for choice in combinations(rewards, size))
    assert np.var(kept) == pytest.approx(best, abs=2e-9)


def test_of_right_and_wrong_samples_as_many_are_kept_as_there_are_of_both() -> None:
    right, wrong, none = 1.0, 0.0, None
    assert most_spread([right] * 6 + [wrong] * 2, 4) == [none] * 4 + [right] * 2 + [wrong] * 2
    assert most_spread([wrong, none, wrong, right, wrong], 3) == [wrong, none, none, right, wrong]
    assert most_spread([right, none], 2) == [right, none]


def test_the_samples_left_out_are_in_no_statistic() -> None:
    (values,) = group_advantages([[1.0, 0.0, 0.0, 0.0, 0.0]], "std", 2)
    assert [value for value in values if value is not None] == pytest.approx(
        [0.5**0.5, -(0.5**0.5)]
    )
    assert values.count(None) == 3
