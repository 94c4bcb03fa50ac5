import math

import pytest

from toploc.audit import (
    AuditPolicy,
    catch_chance,
    draw,
    forecast,
    needed_floor,
    needed_rate,
    schedule,
    simulate,
)
from toploc.errors import InvalidSettings

KEY = bytes(range(32))


def test_the_rate_falls_with_the_record_to_the_floor():
    policy = AuditPolicy(floor=0.1, halving=4)
    rates = [policy.rate(honest) for honest in range(100)]
    assert rates[0] == 1.0 and rates[4] == 0.5 and rates[-1] == 0.1
    assert rates == sorted(rates, reverse=True)
    assert {AuditPolicy().rate(honest) for honest in (0, 7, 10**6)} == {1.0}


@pytest.mark.parametrize("values", [(0.0, 8), (1.1, 8), (math.nan, 8), (0.5, 0)])
def test_a_policy_that_checks_nothing_is_refused(values):
    with pytest.raises(InvalidSettings, match="floor"):
        AuditPolicy(*values)


def test_the_choice_depends_on_key_name_and_bytes_and_is_always_the_same():
    assert draw(KEY, "shard", "ab") == draw(KEY, "shard", "ab") == 0.15024280344129004
    others = {draw(KEY, "shard", "ab"), draw(KEY, "shar", "dab"), draw(KEY, "shard", "ac")}
    others.add(draw(KEY[::-1], "shard", "ab"))
    assert len(others) == 4
    with pytest.raises(InvalidSettings, match="16"):
        draw(b"short", "shard", "ab")


def test_the_choice_is_uniform():
    draws = sorted(draw(KEY, str(number), "ab") for number in range(4000))
    gap = max(abs(value - number / 4000) for number, value in enumerate(draws))
    assert gap < 1.95 / math.sqrt(4000)  # Kolmogorov-Smirnov at 0.001
    assert 0.0 <= draws[0] and draws[-1] < 1.0


def test_closed_form_at_a_constant_rate():
    constant = AuditPolicy(floor=0.3, halving=1)
    assert catch_chance(0.3, 10) == pytest.approx(1 - 0.7**10)
    # After early honest work the rate stands at its floor, and the chain is the closed form.
    early = schedule(200, 0.1, early=150)
    assert sum(early) == 5 and not any(early[:150])
    assert forecast(constant, early).caught == pytest.approx(catch_chance(0.3, 5), abs=1e-6)
    assert needed_rate(0.99, 10) == pytest.approx(1 - 0.01**0.1)
    assert catch_chance(needed_rate(0.99, 10, 0.9), 10, 0.9) == pytest.approx(0.99)
    assert needed_rate(0.99, 1, 0.9) is None and needed_rate(0.5, 0) is None


def test_checking_all_catches_the_first_lie():
    found = forecast(AuditPolicy(), schedule(100, 0.01))
    assert (found.caught, found.audited, found.kept) == (1.0, 1.0, 0.0)
    honest = forecast(AuditPolicy(floor=0.1, halving=4), [0.0] * 100)
    assert honest.caught == 0.0 and honest.kept == 0.0 and 0.1 < honest.audited < 0.4


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("detect", [1.0, 0.8])
@pytest.mark.parametrize("early", [0, 40])
def test_the_forecast_is_what_happens(share, detect, early):
    policy = AuditPolicy(floor=0.15, halving=5)
    plan = schedule(100, share, early)
    expected, trials = forecast(policy, plan, detect), 250
    played = simulate(policy, plan, trials, detect, seed=early)
    spread = math.sqrt(expected.caught * (1 - expected.caught) / trials)
    assert abs(played.caught - expected.caught) <= 4.5 * spread + 1e-9
    assert played.audited == pytest.approx(expected.audited, abs=0.05)
    assert played.kept == pytest.approx(expected.kept, rel=0.3, abs=0.8)


def test_random_lies_too():
    policy, plan = AuditPolicy(floor=0.2, halving=3), [0.1] * 60
    expected, played = forecast(policy, plan), simulate(policy, plan, 400)
    assert played.caught == pytest.approx(expected.caught, abs=0.08)


def test_the_needed_floor_is_the_smallest_that_reaches_the_target():
    plan = schedule(100, 0.1)
    floor = needed_floor(0.99, plan, 8)
    assert floor is not None
    assert forecast(AuditPolicy(floor, 8), plan).caught >= 0.99
    assert forecast(AuditPolicy(floor - 0.0002, 8), plan).caught < 0.99
    assert needed_floor(0.99, schedule(100, 0.01), 8, detect=0.9) is None
