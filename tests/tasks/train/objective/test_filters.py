"""The offline difficulty filter and the online one."""

import pytest
from pydantic import ValidationError

from tasks.train.objective.config import DifficultyRange
from tasks.train.objective.filters import has_signal, within_difficulty

RATES = [0.0, 0.25, 0.5, 1.0]


def kept(rates: list[float | None], low: float | None, high: float | None) -> list[float | None]:
    chosen = within_difficulty(rates, DifficultyRange(minimum=low, maximum=high))
    return [rates[index] for index in chosen]


def test_both_ends_are_inside() -> None:
    assert kept(RATES, 0.125, 0.5) == [0.25, 0.5]
    assert kept(RATES, None, 0.5) == [0.0, 0.25, 0.5]
    assert kept(RATES, 0.25, None) == [0.25, 0.5, 1.0]
    assert kept(RATES, None, None) == RATES


def test_an_unknown_rate_is_in_no_range() -> None:
    assert kept([None, 0.3], 0.0, 1.0) == [0.3]
    assert kept([None, 0.3], None, 0.9) == [0.3]
    assert kept([None, 0.3], None, None) == [None, 0.3]


def test_a_range_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(ValidationError, match="no task could be kept"):
        DifficultyRange(minimum=0.5, maximum=0.1)


def test_signal_needs_one_advantage() -> None:
    assert has_signal([0.0, 0.0, None, -0.1])
    assert not has_signal([0.0, -0.0, None])
    assert not has_signal([])
