"""Packing of samples into rows, and of rows onto ranks.

Invariants: a sample lies in exactly one row, whole; no row is longer than the capacity; every rank
gets the same number of rows, some of them possibly empty (fillers: no sample, no loss, no weight in
any divisor), so that collective operations meet; the same lengths give the same plan.
"""

import heapq
from collections.abc import Sequence

from tasks.train.errors import CannotPack

Row = list[int]
"""Indices of the samples of one packed row, in the order they lie in it; empty: a filler."""


def pack(lengths: Sequence[int], capacity: int) -> list[Row]:
    """First-fit decreasing: longest first, each into the first row with room for it.

    A sample longer than the capacity is never cut, as its second half would have no prompt.

    Raises CannotPack.
    """
    rows: list[Row] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        if not 0 < length <= capacity:
            raise CannotPack(index, length, capacity)
        place = next((row for row, free in enumerate(room) if free >= length), len(rows))
        if place == len(rows):
            rows.append([])
            room.append(capacity)
        rows[place].append(index)
        room[place] -= length
    return rows


def plan(
    lengths: Sequence[int], work: Sequence[float], capacity: int, ranks: int = 1
) -> list[list[Row]]:
    """Rows of each rank, of equal number and of balanced work, the heaviest first.

    Args:
        lengths: tokens of each sample.
        work: cost of each sample, in any unit.
        capacity: most tokens of a row.
        ranks: processes that work side by side.

    Raises CannotPack.
    """
    rows = pack(lengths, capacity)

    def cost(row: Row) -> float:
        return sum(work[index] for index in row)

    while len(rows) % ranks:
        shared = [row for row in rows if len(row) > 1]
        if shared:  # better half a row than a filler beside a full one
            heaviest = max(shared, key=cost)
            rows.remove(heaviest)
            rows += _halves(heaviest, work)
        else:
            rows.append([])
    parts = balance([cost(row) for row in rows], ranks)
    return [sorted((rows[index] for index in part), key=lambda row: -cost(row)) for part in parts]


def balance(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Indices of the costs in `parts` sets of equal number and nearly equal sum.

    Largest differencing method (Karmarkar and Karp 1982) for several sets (Michiels et al. 2003,
    balanced form): start from partitions of `parts` neighbouring single costs, and merge the two
    with the widest spread, the largest set of one with the smallest of the other.

    The number of costs must be a multiple of `parts`.
    """
    if len(costs) % parts:
        raise ValueError(f"{len(costs)} costs cannot be cut into {parts} sets of equal number")
    order = sorted(range(len(costs)), key=lambda index: (-costs[index], index))
    heap: list[tuple[float, int, list[tuple[float, list[int]]]]] = []
    for number, start in enumerate(range(0, len(order), parts)):
        sets = [(costs[index], [index]) for index in order[start : start + parts]]
        heap.append((sets[-1][0] - sets[0][0], number, sets))
    heapq.heapify(heap)
    while len(heap) > 1:
        (_, number, one), (_, _, other) = heapq.heappop(heap), heapq.heappop(heap)
        merged = [(a + b, x + y) for (a, x), (b, y) in zip(one, reversed(other), strict=True)]
        merged.sort(key=lambda part: (-part[0], part[1]))
        heapq.heappush(heap, (merged[-1][0] - merged[0][0], number, merged))
    return [indices for _, indices in heap[0][2]] if heap else [[] for _ in range(parts)]


def _halves(row: Row, work: Sequence[float]) -> list[Row]:
    """The row's samples in two rows: longest first, each to the lighter one."""
    halves: list[Row] = [[], []]
    sums = [0.0, 0.0]
    for index in row:
        lighter = sums.index(min(sums))
        halves[lighter].append(index)
        sums[lighter] += work[index]
    return halves
