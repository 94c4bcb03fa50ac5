import random

import pytest

from infra.pool.simulation.compare import simulate
from infra.pool.simulation.crowd import crowd
from infra.pool.simulation.fleet import H100, H200, PLACES, RTX4090, Machine, Troubles, synthetic2
from infra.pool.simulation.ours import Signals

KINDS = [H200] * 6 + [H100] * 6 + [RTX4090] * 20


def small(rng: random.Random, troubles: Troubles) -> list[Machine]:
    place = PLACES["Frankfurt"]
    return [
        Machine(f"n{n:02d}", specs, place, 1.0, rng.random() < troubles.liars)
        for n, specs in enumerate(KINDS)
    ]


def test_the_fleet_is_that_of_synthetic2():
    machines = synthetic2(random.Random(0), Troubles())
    assert sum(machine.gpus for machine in machines) == 1253
    assert [m.specs for m in machines].count(H200) == 49
    assert [m.specs for m in machines].count(H100) == 43


@pytest.mark.parametrize("policy", ["ours", "original"])
def test_every_gpu_second_is_booked_once(policy):
    summary = simulate(policy, 3, 3.0, Troubles(churn=0.3, liars=0.1), 600.0, small)
    booked = sum(
        value
        for key, value in summary.items()
        if key.endswith("_gpu_hours") and key not in ("available_gpu_hours", "wasted_gpu_hours")
    )
    # What is submitted but not judged at the end is the only time without a cause.
    pending = summary["available_gpu_hours"] - booked
    assert 0 <= pending < 0.02 * summary["available_gpu_hours"]
    assert summary["shards"] > 0 and summary["useful_gpu_hours"] > 0


def test_same_seed_same_account():
    runs = [simulate("ours", 5, 1.0, Troubles(churn=0.5), 300.0, small) for _ in range(2)]
    assert runs[0] == runs[1]


def test_without_troubles_nothing_is_wasted_after_the_start():
    calm = Troubles(churn=0, partitions=0, stragglers=0, liars=0, false_refusals=0)
    summary = simulate("ours", 1, 4.0, calm, 300.0, small)
    assert summary["wasted_gpu_hours"] == 0
    assert summary["dead"] == 0


def test_our_policies_waste_less_with_equal_shards():
    troubles = Troubles(churn=0.3, liars=0.05)
    ours, theirs = (simulate(name, 2, 8.0, troubles, 600.0, small) for name in ("ours", "original"))
    assert ours["wasted_gpu_hours"] < theirs["wasted_gpu_hours"]
    assert ours["detection_gpu_hours"] * 2 < theirs["detection_gpu_hours"]


def test_a_crowd_is_formed_and_ticks_cheaply():
    figures = crowd(3000, 1)
    assert figures["groups"] > 1500
    assert figures["steady_tick_max_s"] < 1.0


def test_honest_machines_that_are_excluded_are_counted():
    """With every fourth honest result refused, three in a row come soon for ours."""
    troubles = Troubles(churn=0, partitions=0, stragglers=0, liars=0, false_refusals=0.25)
    ours, theirs = (simulate(name, 4, 3.0, troubles, 300.0, small) for name in ("ours", "original"))
    assert ours["banned_wrongly"] > 0 and ours["rejected_gpu_hours"] > 0
    # There a soft refusal costs the work only.
    assert theirs["banned_wrongly"] == 0 and theirs["rejected_gpu_hours"] > 0
    honest = Troubles(churn=0, partitions=0, stragglers=0, liars=0.1, false_refusals=0)
    assert simulate("ours", 4, 1.0, honest, 300.0, small)["banned_wrongly"] == 0


def test_without_signals_recovery_is_slower():
    troubles = Troubles(churn=0.5)
    told = simulate("ours", 7, 3.0, troubles, 300.0, small)
    untold = simulate("ours", 7, 3.0, troubles, 300.0, small, Signals(lost_peers=False))
    assert untold["recovery_mean_s"] > told["recovery_mean_s"]
