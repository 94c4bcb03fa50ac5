"""Packing into rows and onto ranks: a known plan, and what holds for all lengths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.train.errors import CannotPack
from tasks.train.packing import balance, pack, plan

LENGTHS = [5, 7, 5, 2, 4, 2, 5, 1, 6]
lengths_lists = st.lists(st.integers(1, 50), max_size=40)


def test_first_fit_decreasing() -> None:
    rows = [[LENGTHS[index] for index in row] for row in pack(LENGTHS, 10)]
    assert rows == [[7, 2, 1], [6, 4], [5, 5], [5, 2]]
    assert pack(LENGTHS, 10)[2] == [0, 2]  # of equal lengths the earlier sample goes first


@pytest.mark.parametrize("length", [6, 0])
def test_a_sample_that_does_not_fit_is_refused_not_cut(length: int) -> None:
    with pytest.raises(
        CannotPack, match=f"sample 1 has {length} tokens; a packed row holds 1 to 4"
    ):
        pack([3, length], 4)


@given(lengths_lists, st.integers(50, 120))
def test_each_sample_once_and_no_row_too_long(lengths: list[int], capacity: int) -> None:
    rows = pack(lengths, capacity)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[index] for index in row) <= capacity for row in rows)
    # first fit leaves at most one row half empty
    assert sum(sum(lengths[index] for index in row) * 2 <= capacity for row in rows) <= 1


@given(lengths_lists, st.integers(50, 120), st.integers(1, 5), st.sampled_from([0.0, 0.02]))
def test_ranks_get_equal_numbers_of_rows(
    lengths: list[int], capacity: int, ranks: int, quadratic: float
) -> None:
    work = [length + quadratic * length**2 for length in lengths]
    parts = plan(lengths, work, capacity, ranks)
    assert len(parts) == ranks and len({len(part) for part in parts}) == 1
    rows = [row for part in parts for row in part]
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= capacity for row in rows)
    empty = sum(not row for row in rows)
    assert empty < ranks and (not empty or all(len(row) <= 1 for row in rows))
    assert parts == plan(lengths, work, capacity, ranks)


def test_rows_are_halved_before_fillers_are_added() -> None:
    (first, second) = plan([4, 3, 3], [4, 3, 3], 10, ranks=2)
    assert (first, second) == ([[0]], [[1, 2]]) or (first, second) == ([[1, 2]], [[0]])
    assert sorted(plan([9], [9], 10, ranks=3)) == [[[]], [[]], [[0]]]
    assert plan([], [], 10, ranks=2) == [[], []]


def test_the_heaviest_row_comes_first_on_every_rank() -> None:
    for part in plan(LENGTHS * 3, LENGTHS * 3, 10, ranks=3):
        sums = [sum((LENGTHS * 3)[index] for index in row) for row in part]
        assert sums == sorted(sums, reverse=True)


def test_ranks_get_like_work_and_not_like_tokens() -> None:
    """Two long samples and eight short ones of as many tokens, where the long ones cost more."""
    lengths = [40, 40, *[10] * 8]
    work = [length**2 for length in lengths]
    loads = [sum(work[at] for row in part for at in row) for part in plan(lengths, work, 40, 2)]
    assert loads == [2000, 2000]


def test_differencing_balances_better_than_dealing_in_order() -> None:
    costs = [float(8 + (7 * index * index) % 93) for index in range(24)]
    for parts in (2, 3, 4):
        sets = balance(costs, parts)
        sums = [sum(costs[index] for index in each) for each in sets]
        assert {len(each) for each in sets} == {24 // parts}
        assert sorted(index for each in sets for index in each) == list(range(24))
        assert max(sums) <= 1.01 * sum(costs) / parts
    with pytest.raises(ValueError, match="5 costs cannot be cut into 2 sets"):
        balance([1.0] * 5, 2)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.integers(1, 6))
def test_sets_differ_by_less_than_the_widest_step(costs: list[float], parts: int) -> None:
    """Merging largest with smallest never makes a spread wider than the widest of its parts."""
    costs = costs * parts
    sets = balance(costs, parts)
    sums = [sum(costs[index] for index in each) for each in sets]
    order = sorted(costs, reverse=True)
    widest = max(order[at] - order[at + parts - 1] for at in range(0, len(order), parts))
    assert max(sums) - min(sums) <= widest + 1e-3
