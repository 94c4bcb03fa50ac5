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
    """Integers that order float32 values (not NaN) as the values are ordered; -0 precedes 0."""
    bits = values.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def top_k(keys: Tensor, k: int) -> Tensor:
    """Columns [rows, k] of the k largest keys [rows, n]: by key downwards, then by column.

    Requires 1 <= k <= n.
    """
    columns, _ = leading(keys, k)
    return columns[:, :k]


def leading(keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """At least the k largest keys (integers or float32) of each row, and all that tie with the last.

    Returns columns [rows, width], ordered as in `top_k`, and their number in each row [rows]; places
    beyond that number hold some other columns.
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
    key = keys[row, column]
    key = (ordered_keys(key) if key.is_floating_point() else key).to(torch.int64)
    order = torch.argsort((row << 32) - key, stable=True)
    column = column[order]
    counts = torch.bincount(row, minlength=rows)
    starts = torch.cumsum(counts, 0) - counts
    places = starts[:, None] + torch.arange(int(counts.max()), device=keys.device)
    return column[places.clamp_(max=len(column) - 1)], counts


def _candidates(keys: Tensor, k: int, width: int) -> tuple[Tensor, Tensor]:
    """Row and column of a few entries that hold the k largest of each row."""
    rows, n = keys.shape
    blocks = n // width
    body = keys[:, : blocks * width].unflatten(1, (width, blocks))
    maxima = body.amax(1)
    bound = maxima.topk(k, dim=1, sorted=True).values[:, -1]
    row, block = torch.nonzero(maxima >= bound[:, None], as_tuple=True)
    entry, place = torch.nonzero(body[row, :, block] >= bound[row, None], as_tuple=True)
    tail_row, tail = torch.nonzero(keys[:, blocks * width :] >= bound[:, None], as_tuple=True)
    row = torch.cat([row[entry], tail_row])
    column = torch.cat([place * blocks + block[entry], tail + blocks * width])
    return row, column
