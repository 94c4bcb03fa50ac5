import math

import numpy as np
import pytest

from toploc.record import Record


def test_the_weight_is_the_mean_likelihood_ratio_of_higher_rates():
    rates = [0.01 ** (1 - (step + 0.5) / 16) for step in range(16)]
    ratios = [(p / 0.01) ** 3 * ((1 - p) / 0.99) ** 37 for p in rates]
    assert Record(40, 3, 0.01).weight() == pytest.approx(math.log(sum(ratios) / 16))
    assert Record(40, 0, 0.01).weight() == 0.0


def test_one_refusal_proves_nothing_and_steady_ones_do():
    assert not Record().proves_lies() and not Record(10**6, 0, 1e-4).proves_lies()
    assert not any(Record(judged, 1, 1e-4).proves_lies() for judged in (1, 10, 1000, 10**7))
    assert Record(2, 2, 1e-4).proves_lies() and not Record(20, 2, 1e-4).proves_lies()
    assert not Record(10_000, 3, 1e-4).proves_lies()
    assert Record(600, 6, 1e-4).proves_lies()  # one in a hundred
    assert not Record(2, 2, 1e-2).proves_lies()


@pytest.mark.parametrize("judged", [100, 10_000, 10**6, 10**8])
def test_fewer_refusals_than_stated_never_speak_against_a_node(judged):
    rate = 1e-4
    expected = max(1, round(judged * rate))
    weights = [Record(judged, beyond, rate).weight() for beyond in range(1, expected + 1)]
    assert all(weight < math.log(1e5) for weight in weights)
    assert weights == sorted(weights)
    # A larger rate, of another model's limits, never makes a record worse.
    assert Record(judged, expected, 1e-2).weight() <= Record(judged, expected, rate).weight()


def test_records_add_up_and_the_largest_rate_counts():
    assert Record(3, 1, 1e-3) + Record(4, 2, 1e-4) == Record(7, 3, 1e-3)
    assert Record() + Record(1) == Record(1)


@pytest.mark.parametrize("true_rate", [0.01, 0.003])
def test_an_honest_node_that_is_looked_at_after_every_trace_is_not_taken_for_a_liar(true_rate):
    # At a chance of 0.05, so that it can be counted: Ville's bound holds at all times together.
    rng, nodes, traces, rate = np.random.default_rng(5), 1000, 3000, 0.01
    refused = np.cumsum(rng.random((nodes, traces)) < true_rate, axis=1)
    weights = {
        (judged, beyond): Record(judged, beyond, rate).proves_lies(0.05)
        for judged in range(1, traces + 1)
        for beyond in np.unique(refused[:, judged - 1]).tolist()
    }
    ever = sum(
        any(weights[judged + 1, beyond] for judged, beyond in enumerate(row.tolist()))
        for row in refused
    )
    assert ever <= 0.05 * nodes
    assert true_rate < rate or ever > 0
