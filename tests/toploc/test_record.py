import math

import numpy as np
import pytest

from toploc.record import Record


def test_the_weight_is_the_likelihood_ratio_spread_by_beta():
    # Beta(1/2, 1/2) gives one of one 1/2 and two of two 3/8.
    assert Record(1, 1, 1e-4).weight() == pytest.approx(math.log(0.5 / 1e-4))
    assert Record(2, 2, 1e-4).weight() == pytest.approx(math.log(0.375 / 1e-8))
    numbers = np.linspace(0.0, 1.0, 400_001)[1:-1]
    density = 1.0 / (math.pi * np.sqrt(numbers * (1.0 - numbers)))
    mixed = np.trapezoid(density * numbers**3 * (1.0 - numbers) ** 37, numbers)
    expected = math.log(mixed) - 3 * math.log(0.01) - 37 * math.log(0.99)
    assert Record(40, 3, 0.01).weight() == pytest.approx(expected, abs=1e-6)


def test_one_refusal_proves_nothing_and_steady_ones_do():
    assert not Record().proves_lies() and not Record(10**6, 0, 1e-4).proves_lies()
    assert not any(Record(judged, 1, 1e-4).proves_lies() for judged in (1, 10, 1000))
    assert Record(2, 2, 1e-4).proves_lies() and not Record(20, 2, 1e-4).proves_lies()
    assert not Record(10_000, 3, 1e-4).proves_lies()
    assert Record(600, 6, 1e-4).proves_lies()  # one in a hundred
    assert not Record(2, 2, 1e-2).proves_lies()


def test_records_add_up_and_the_largest_rate_counts():
    assert Record(3, 1, 1e-3) + Record(4, 2, 1e-4) == Record(7, 3, 1e-3)
    assert Record() + Record(1) == Record(1)


def test_an_honest_node_that_is_looked_at_after_every_trace_is_not_taken_for_a_liar():
    # At a chance of 0.05, so that it can be counted: Ville's bound holds at all times together.
    rng, nodes, traces, rate = np.random.default_rng(5), 2000, 3000, 0.01
    refused = np.cumsum(rng.random((nodes, traces)) < rate, axis=1)
    weights = {
        (judged, beyond): Record(judged, beyond, rate).proves_lies(0.05)
        for judged in range(1, traces + 1)
        for beyond in np.unique(refused[:, judged - 1]).tolist()
    }
    ever = sum(
        any(weights[judged + 1, beyond] for judged, beyond in enumerate(row.tolist()))
        for row in refused
    )
    assert 0 < ever <= 0.05 * nodes
