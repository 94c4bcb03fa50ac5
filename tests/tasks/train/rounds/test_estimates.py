import itertools
import math

import numpy as np
import pytest

from tasks.train.rounds.estimates import over_tasks, pass_at_k, wilson


def test_wilson_gives_the_textbook_values():
    # Agresti and Coull 1998: 0 of 10 and 15 of 20 at 95 %.
    none = wilson(0.0, 10)
    assert (none.mean, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(0.2775, abs=1e-4)
    most = wilson(0.75, 20)
    assert (most.low, most.high) == (
        pytest.approx(0.5313, abs=1e-4),
        pytest.approx(0.8881, abs=1e-4),
    )


def test_wilson_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    for rate in (0.05, 0.4, 0.9):
        drawn = rng.binomial(200, rate, size=2000) / 200
        covered = [e.low <= rate <= e.high for e in (wilson(float(mean), 200) for mean in drawn)]
        assert 0.93 <= np.mean(covered) <= 0.975


@pytest.mark.parametrize(("samples", "right"), [(1, 0), (1, 1), (4, 0), (4, 3), (6, 1), (6, 3)])
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples(samples, right):
    marks = [True] * right + [False] * (samples - right)
    for k in range(1, samples + 1):
        choices = list(itertools.combinations(marks, k))
        share = sum(any(choice) for choice in choices) / len(choices)
        assert pass_at_k(samples, right, k) == pytest.approx(share, abs=1e-12)


def test_pass_at_k_has_no_bias_unlike_the_plain_power():
    rng = np.random.default_rng(3)
    rate, samples, k = 0.3, 8, 4
    truth = 1 - (1 - rate) ** k
    drawn = rng.binomial(samples, rate, size=20_000)
    unbiased = np.mean([pass_at_k(samples, int(right), k) for right in drawn])
    plain = np.mean([1 - (1 - right / samples) ** k for right in drawn])
    assert abs(unbiased - truth) < 0.01 < abs(plain - truth)


def test_samples_of_one_task_do_not_count_as_tasks_of_their_own():
    """40 tasks that are always or never right, asked 4 times: no more is known than from 40."""
    values = [1.0] * 20 + [0.0] * 20
    once = over_tasks(values)
    assert (once.low, once.high) == pytest.approx((0.352, 0.648), abs=0.005)
    steady = over_tasks([0.5] * 20 + [0.25, 0.75] * 10)
    assert steady.high - steady.low < (once.high - once.low) / 2


@pytest.mark.parametrize("values", [[0.0] * 7, [1.0] * 7, [0.5], [0.25] * 9])
def test_an_interval_holds_its_mean_and_stays_within_0_and_1(values):
    estimate = over_tasks(values)
    assert 0.0 <= estimate.low <= estimate.mean <= estimate.high <= 1.0
    assert estimate.low < estimate.high
    assert math.isclose(estimate.mean, sum(values) / len(values))


def test_what_cannot_be_estimated_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        over_tasks([])
    with pytest.raises(ValueError, match="1 to 4"):
        pass_at_k(4, 2, 5)
    with pytest.raises(ValueError, match="trials"):
        wilson(0.5, 0)
