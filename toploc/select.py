"""The largest entries of each row, with ties broken by the lowest index.

One pass over the data finds the maxima of strided blocks. The k-th largest maximum of disjoint
groups of them is a lower bound of the k-th largest entry, and little below it, so only blocks that
reach it are looked at again, and only their entries that reach it are sorted. The same torch code
serves CPU and CUDA; results are equal bit for bit whatever the device, the number of threads or the
other rows.

Rows hold float32 numbers, ordered as numbers, or int16, the bits of bf16 or fp16 values, ordered by
their magnitude, which is the order of the bits without the sign.
"""

import math

import torch
from torch import Tensor

_MAGNITUDE = 0x7FFF
_WIDEST_BLOCK = 32
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
    width = min(_WIDEST_BLOCK, n // (_GROUPS_PER_RESULT * k))
    if width < 2:
        columns = torch.arange(n, device=values.device).expand(rows, n)
        return _ordered(_packed(values, columns)), torch.full((rows,), n, device=values.device)
    parts = _candidates(values, k, width)
    counts = torch.stack([torch.bincount(row, minlength=rows) for row, _ in parts])
    starts = counts.cumsum(0) - counts
    total = counts.sum(0)
    packed = torch.full((rows, int(total.max())), _LAST, device=values.device)
    for (row, column), count, start in zip(parts, counts, starts, strict=True):
        before = count.cumsum(0) - count  # entries of this part in the rows above
        place = torch.arange(len(row), device=row.device) + (start - before)[row]
        packed[row, place] = _packed(values[row, column], column)
    return _ordered(packed), total


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
        packed.numpy().sort(axis=1)  # several times faster than torch's sort
    else:
        packed = packed.sort(dim=1).values
    return packed & _LOW


def _candidates(values: Tensor, k: int, width: int) -> list[tuple[Tensor, Tensor]]:
    """Rows and columns of a few entries that hold the k largest of each row, in two parts.

    The rows of each part ascend.
    """
    rows, n = values.shape
    blocks = n // width
    # Large activations come back in the same channels of every token. A number of blocks without a
    # common factor with n, and so with the number of channels, spreads a channel over blocks.
    while math.gcd(blocks, n) > 1 and blocks > 3 * k:
        blocks -= 1
    body = values[:, : blocks * width].view(rows, width, blocks)
    maxima = _block_maxima(body)
    size = max(blocks // (_GROUPS_PER_RESULT * k), 1)
    groups = maxima[:, : blocks // size * size].view(rows, size, -1).amax(1)
    bound = groups.topk(k, dim=1).values[:, -1]
    row, block = torch.nonzero(maxima >= bound[:, None], as_tuple=True)
    entry, place = torch.nonzero(_keys(body[row, :, block]) >= bound[row, None], as_tuple=True)
    tail = _keys(values[:, blocks * width :])
    tail_row, tail_column = torch.nonzero(tail >= bound[:, None], as_tuple=True)
    return [
        (row[entry], place * blocks + block[entry]),
        (tail_row, tail_column + blocks * width),
    ]


def _keys(values: Tensor) -> Tensor:
    return values & _MAGNITUDE if values.dtype == torch.int16 else values


def _block_maxima(body: Tensor) -> Tensor:
    """Largest key of each block of [rows, width, blocks]."""
    if body.dtype != torch.int16 or body.is_cuda:
        return _keys(body).amax(1)
    # Row by row through one buffer that stays in the cache: memory is read once and not written.
    buffer = torch.empty_like(body[0])
    maxima = torch.empty_like(body[:, 0])
    for row, out in zip(body, maxima, strict=True):
        torch.bitwise_and(row, _MAGNITUDE, out=buffer)
        torch.amax(buffer, 0, out=out)
    return maxima
