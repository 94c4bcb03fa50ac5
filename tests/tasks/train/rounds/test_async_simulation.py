"""The event simulation of `tests.bench.rl_async`, where the answer is known."""

import pytest

from tests.bench.rl_async_simulation import Measured, balanced_devices, simulate


def per_step(measured, devices, staleness, jobs=2, steps=400):
    return simulate(measured, steps, jobs, devices, staleness, seed=0).seconds / steps


def test_synchronous_rounds_take_generation_and_training_one_after_the_other():
    measured = Measured(job=[1.0], check=[0.0], train=[2.0], publish=0.5)
    assert per_step(measured, devices=1, staleness=0) == pytest.approx(2.0 + 2.0 + 0.5, abs=0.01)
    assert per_step(measured, devices=2, staleness=0) == pytest.approx(1.0 + 2.0 + 0.5, abs=0.01)


def test_asynchronous_rounds_take_what_is_slower():
    measured = Measured(job=[1.0], check=[0.0], train=[2.0], publish=0.5)
    assert per_step(measured, devices=1, staleness=2) == pytest.approx(2.0, abs=0.02)
    assert per_step(measured, devices=2, staleness=2) == pytest.approx(2.0, abs=0.02)


def test_one_step_ahead_still_waits_for_the_version_to_get_out():
    measured = Measured(job=[2.0], check=[0.0], train=[2.0], publish=1.0)
    # Generation of n + 1 starts when version n - 1 is out: 4 s of jobs and half of that training.
    assert per_step(measured, 2, 0, jobs=2) > per_step(measured, 2, 1, jobs=2)
    assert per_step(measured, 2, 1, jobs=2) > per_step(measured, 2, 2, jobs=2)


def test_stragglers_hold_up_synchronous_rounds_only():
    tailed = Measured(job=[1.0] * 9 + [10.0], check=[0.0], train=[1.9], publish=0.0)
    outcome = {k: simulate(tailed, 400, 4, 4, k, seed=1) for k in (0, 4)}
    assert outcome[0].seconds > 1.5 * outcome[4].seconds
    assert outcome[4].inference_idle < outcome[0].inference_idle


def test_uploads_are_checked_one_after_the_other():
    measured = Measured(job=[1.0], check=[0.5], train=[1.0], publish=0.0)
    # Of two jobs at once the second waits for the first one's check.
    assert per_step(measured, devices=2, staleness=0) == pytest.approx(1.0 + 2 * 0.5 + 1.0)
    slow = Measured(job=[1.0], check=[3.0], train=[1.0], publish=0.0)
    assert per_step(slow, devices=2, staleness=4) == pytest.approx(2 * 3.0, abs=0.02)


def test_devices_are_chosen_to_keep_pace():
    assert balanced_devices(Measured([3.0], [0.0], [2.0], 0.0), jobs_per_step=4) == 6
    assert balanced_devices(Measured([0.1], [0.0], [2.0], 0.0), jobs_per_step=4) == 1
