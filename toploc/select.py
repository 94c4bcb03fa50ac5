"""The largest entries of each row, with ties broken by the lowest index.

One pass over the data finds the maxima of strided blocks. The k-th largest block maximum is a lower
bound of the k-th largest entry, so only blocks that reach it are looked at again, and only their
entries that reach it are sorted. The same torch code serves CPU and CUDA; results are equal bit for
bit whatever the device, the number of threads or the other rows.

Rows hold float32 numbers, ordered as numbers, or int16, the bits of bf16 or fp16 values, ordered by
their magnitude, which is the order of the bits without the sign.
"""

import torch
from torch import Tensor

_MAGNITUDE = 0x7FFF
_WIDEST_BLOCK = 64
_LOW = 0xFFFFFFFF


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
    width = min(_WIDEST_BLOCK, n // (4 * k))
    if width < 2:
        return _sorted(values), torch.full((rows,), n, device=values.device)
    row, column = _candidates(values, k, width)
    # Stable sorts from the least significant criterion to the most significant one.
    order = torch.argsort(column)
    row, column = row[order], column[order]
    order = torch.argsort((row << 32) - _ranks(values[row, column]), stable=True)
    column = column[order]
    counts = torch.bincount(row, minlength=rows)
    starts = torch.cumsum(counts, 0) - counts
    places = starts[:, None] + torch.arange(int(counts.max()), device=values.device)
    return column[places.clamp_(max=len(column) - 1)], counts


def _ranks(values: Tensor) -> Tensor:
    """int64 numbers of less than 32 bits and a sign, in the order of the values."""
    if values.dtype == torch.int16:
        return values.to(torch.int64) & _MAGNITUDE
    bits = (values + 0.0).view(torch.int32)  # the sum turns -0 into 0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)


def _sorted(values: Tensor) -> Tensor:
    """All columns in order, by sorting numbers made of rank and column."""
    columns = torch.arange(values.shape[1], device=values.device)
    packed = (-_ranks(values) << 32) | columns
    if packed.device.type == "cpu":
        packed.numpy().sort(axis=1)  # several times faster than torch's sort
        return packed & _LOW
    return torch.sort(packed, dim=1).values & _LOW


def _candidates(values: Tensor, k: int, width: int) -> tuple[Tensor, Tensor]:
    """Row and column of a few entries that hold the k largest of each row."""
    n = values.shape[1]
    blocks = n // width
    body = values[:, : blocks * width].view(-1, width, blocks)
    maxima = _block_maxima(body)
    bound = maxima.topk(k, dim=1, sorted=True).values[:, -1]
    row, block = torch.nonzero(maxima >= bound[:, None], as_tuple=True)
    entry, place = torch.nonzero(_keys(body[row, :, block]) >= bound[row, None], as_tuple=True)
    tail = _keys(values[:, blocks * width :])
    tail_row, tail_column = torch.nonzero(tail >= bound[:, None], as_tuple=True)
    row = torch.cat([row[entry], tail_row])
    column = torch.cat([place * blocks + block[entry], tail_column + blocks * width])
    return row, column


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
