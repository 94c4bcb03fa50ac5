"""The largest entries of each row, with ties broken by the lowest index.

Without sorting everything: the k-th largest maximum of disjoint groups of entries is a lower bound
of the k-th largest entry, and little below it, so only the few entries that reach it are sorted. A
CPU makes one pass over the data, row by row through the cache, and then looks only at small blocks
that reach the bound; numpy does that, whose operations on small numbers are several times faster
than torch's there. Elsewhere torch compares all entries. Results are equal bit for bit whatever the
device, the number of threads or the other rows.

Rows hold float32 numbers, ordered as numbers, or int16, the bits of bf16 or fp16 values, ordered by
their magnitude, which is the order of the bits without the sign.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_MAGNITUDE = 0x7FFF
_WIDEST_BLOCK = 16
_GROUPS_PER_RESULT = 4
"""With so many groups for each of the k results, the bound lets about k/8 too many entries pass."""

_LOW = 0xFFFFFFFF
_LAST = 0x7FFFFFFF << 32


def top_k(values: Tensor, k: int) -> Tensor:
    """Columns [rows, k] of the k largest of values [rows, n]: largest first, then by column.

    Requires 1 <= k <= n, n < 2**32 and no NaN among float32 numbers.
    """
    columns, _ = leading(values, k)
    return columns[:, :k]


def leading(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """At least the k largest of each row, and all that tie with the last of them.

    Returns columns [rows, width], ordered as in `top_k`, and their number in each row [rows];
    places beyond that number hold some other columns.
    """
    rows, n = values.shape
    if n < 2 * _GROUPS_PER_RESULT * k:
        columns = torch.arange(n, device=values.device).expand(rows, n)
        return _ordered(_packed(values, columns)), torch.full((rows,), n, device=values.device)
    reaching = _reaching_on_cpu if values.device.type == "cpu" else _reaching
    keys, columns, counts = reaching(values, k)
    packed = torch.full((rows, int(counts.max())), _LAST, device=values.device)
    filled = torch.arange(packed.shape[1], device=values.device) < counts[:, None]
    packed[filled] = _packed(keys, columns)
    return _ordered(packed), counts


def _packed(values: Tensor, columns: Tensor) -> Tensor:
    """Numbers whose ascending order is by value, largest first, then by column."""
    return (-_ranks(values) << 32) | columns


def _ranks(values: Tensor) -> Tensor:
    """int64 numbers of less than 32 bits and a sign, in the order of the values."""
    if values.dtype == torch.int16:
        return values.to(torch.int64) & _MAGNITUDE
    bits = (values + 0.0).view(torch.int32)  # the sum turns -0 into 0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)


def _ordered(packed: Tensor) -> Tensor:
    """The columns in the order of packed numbers, which may be sorted in place."""
    if packed.device.type == "cpu":
        packed.numpy().sort(axis=1)
    else:
        packed = packed.sort(dim=1).values
    return packed & _LOW


def _blocks(n: int, k: int) -> tuple[int, int, int]:
    """Width and number of strided blocks of n entries, and how many blocks make a group."""
    width = min(_WIDEST_BLOCK, n // (_GROUPS_PER_RESULT * k))
    blocks = n // width
    # Large activations come back in the same channels of every token. A number of blocks without a
    # common factor with n, and so with the number of channels, spreads a channel over blocks.
    while math.gcd(blocks, n) > 1 and blocks > 3 * k:
        blocks -= 1
    return width, blocks, max(blocks // (_GROUPS_PER_RESULT * k), 1)


def _reaching(values: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and columns of all entries that reach the bound, row by row, and how many in each."""
    width, blocks, size = _blocks(values.shape[1], k)
    groups = blocks // size
    keys = values & _MAGNITUDE if values.dtype == torch.int16 else values
    maxima = keys[:, : width * size * groups].view(len(keys), -1, groups).amax(1)
    reach = keys >= maxima.topk(k, dim=1).values[:, -1:]
    return keys[reach], torch.nonzero(reach)[:, 1], reach.sum(1)


def _reaching_on_cpu(values: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `_reaching`."""
    data = values.numpy()
    rows, n = data.shape
    width, blocks, size = _blocks(n, k)
    edge, groups = width * blocks, blocks // size
    masked = np.empty(n, dtype=np.int16)
    maxima = np.empty(blocks, dtype=data.dtype)
    bounds = np.empty(rows, dtype=data.dtype)
    chosen, again = [], []
    for at, row in enumerate(data):
        grid = _keys(row, masked)[:edge].reshape(width, blocks)
        np.maximum.reduce(grid, axis=0, out=maxima)
        sample = np.maximum.reduce(maxima[: groups * size].reshape(size, groups), axis=0)
        sample.partition(groups - k)
        bounds[at] = sample[groups - k]
        chosen.append(np.flatnonzero(maxima >= bounds[at]))
        again.append(grid.take(chosen[at], axis=1).reshape(-1))
    # Of all chosen blocks of all rows, [width, blocks of the row] each, the entries that reach.
    lengths = np.array([len(block) for block in chosen])
    owner = np.repeat(np.arange(rows), lengths * width)
    hit = np.flatnonzero(np.concatenate(again) >= bounds[owner])
    row = owner[hit]
    first = lengths.cumsum() - lengths
    place, nth = np.divmod(hit - first[row] * width, lengths[row])
    inside = row * n + place * blocks + np.concatenate(chosen)[first[row] + nth]
    tail_row, tail = np.nonzero(_keys(data[:, edge:]) >= bounds[:, None])
    where = np.concatenate([inside, tail_row * n + tail + edge])
    where.sort()
    row, column = np.divmod(where, n)
    keys, counts = data.reshape(-1).take(where), np.bincount(row, minlength=rows)
    return torch.from_numpy(keys), torch.from_numpy(column), torch.from_numpy(counts)


def _keys(values: npt.NDArray[Any], out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """What the order of values is by."""
    if values.dtype != np.int16:
        return values
    keys: npt.NDArray[Any] = np.bitwise_and(values, _MAGNITUDE, out=out)
    return keys
