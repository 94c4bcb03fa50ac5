import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toploc.errors import NoInjectiveModulus
from toploc.field import P, evaluate, injective_moduli, interpolate


@pytest.mark.parametrize("k", [1, 2, 3, 16, 17, 63, 128, 256, 1000, 4096, 5000])
def test_interpolation_goes_through_the_points(k):
    random = np.random.default_rng(k)
    x = np.stack([random.permutation(P)[:k] for _ in range(5)])
    y = random.integers(0, P, (5, k))
    y[0] = P - 1
    x[1], y[1] = np.arange(P - k, P), P - 1
    coefficients = interpolate(x, y)
    assert coefficients.shape == (5, k)
    assert coefficients.min() >= 0 and coefficients.max() < P
    assert (evaluate(coefficients, x) == y).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, P - 1), min_size=1, max_size=40), st.integers(0, P - 1))
def test_evaluation_matches_python_integers(coefficients, x):
    expected = sum(c * pow(x, i, P) for i, c in enumerate(coefficients)) % P
    assert evaluate(np.array([coefficients]), np.array([[x]])) == expected


def test_evaluation_at_the_largest_numbers():
    coefficients = np.full((1, 128), P - 1)
    x = np.array([[0, 1, P - 1]])
    expected = [sum((P - 1) * pow(int(v), i, P) for i in range(128)) % P for v in x[0]]
    assert evaluate(coefficients, x)[0].tolist() == expected


def test_the_largest_modulus_that_keeps_indices_apart():
    rows = np.array([[0, 1, 2], [0, P, 5], [3, 3 + P, 3 + P - 1], [7, 7 + 2 * (P - 1), 8]])
    moduli = injective_moduli(rows)
    assert moduli.tolist() == [P, P - 1, P - 2, P]
    for row, modulus in zip(rows, moduli, strict=True):
        assert len(set((row % modulus).tolist())) == 3


def test_indices_that_no_modulus_keeps_apart():
    with pytest.raises(NoInjectiveModulus, match="keeps 2 indices"):
        injective_moduli(np.array([[4, 4]]))
