"""The k largest entries of each row, with ties broken by the lowest index.

One pass over the data finds the maxima of strided blocks. The k-th largest block maximum is a lower
bound of the k-th largest entry, so only blocks that reach it are looked at again, and only their
entries that reach it are sorted. The same torch code serves CPU and CUDA; results are equal bit for
bit whatever the device, the number of threads or the other rows.
"""

import torch
from torch import Tensor

MAGNITUDE = 0x7FFF
_WIDEST_BLOCK = 64


def magnitude_keys(values: Tensor) -> Tensor:
    """Integers that order bf16 or fp16 values by magnitude: their bits without the sign."""
    return values.view(torch.int16) & MAGNITUDE


def ordered_keys(values: Tensor) -> Tensor:
    """Integers that order float32 values (not NaN) as the values are ordered."""
    bits = values.contiguous().view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def top_k(keys: Tensor, k: int) -> Tensor:
    """Columns [rows, k] of the k largest integer keys [rows, n]: by key downwards, then by column.

    Requires 1 <= k <= n.
    """
    rows, n = keys.shape
    width = min(_WIDEST_BLOCK, n // (4 * k))
    if width < 2:
        row = torch.arange(rows, device=keys.device).repeat_interleave(n)
        column = torch.arange(n, device=keys.device).repeat(rows)
    else:
        row, column = _candidates(keys, k, width)
    # Stable sorts from the least significant criterion to the most significant one.
    order = torch.argsort(column)
    row, column = row[order], column[order]
    key = keys[row, column].to(torch.int64)
    order = torch.argsort((row << 32) - key, stable=True)
    row, column = row[order], column[order]
    counts = torch.bincount(row, minlength=rows)
    starts = torch.cumsum(counts, 0) - counts
    return column[starts[:, None] + torch.arange(k, device=keys.device)]


def _candidates(keys: Tensor, k: int, width: int) -> tuple[Tensor, Tensor]:
    """Row and column of a few entries that hold the k largest of each row."""
    rows, n = keys.shape
    blocks = n // width
    body = keys[:, : blocks * width].unflatten(1, (width, blocks))
    maxima = body.amax(1)
    bound = maxima.topk(k, dim=1, sorted=True).values[:, -1]
    row, block = torch.nonzero(maxima >= bound[:, None], as_tuple=True)
    entry, place = torch.nonzero(body[row, :, block] >= bound[row, None], as_tuple=True)
    tail = torch.arange(blocks * width, n, device=keys.device)
    all_rows = torch.arange(rows, device=keys.device).repeat_interleave(len(tail))
    row = torch.cat([row[entry], all_rows])
    column = torch.cat([place * blocks + block[entry], tail.repeat(rows)])
    return row, column
