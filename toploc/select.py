"""The largest entries of each row, with ties broken by the lowest index.

Without sorting everything: the k-th largest maximum of disjoint groups of entries is a lower bound
of the k-th largest entry, and little below it, so only the few entries that reach it are sorted. A
CPU makes one pass over the data, row by row through the cache, and then looks only at small blocks
that reach the bound, in compiled code. Elsewhere torch compares all entries. Results are equal bit
for bit whatever the device, the number of threads or the other rows.

Rows hold float32 numbers, ordered as numbers, or int16, the bits of bf16 or fp16 values, ordered by
their magnitude, which is the order of the bits without the sign.
"""

import math

import numpy as np
import torch
from torch import Tensor

_MAGNITUDE = 0x7FFF
_WIDEST_BLOCK = 16
_WIDEST_CPU_BLOCK = 64
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
    packed, counts = reaching(values, k)
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


def _reaching(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """All entries that reach the bound, packed [rows, width], and how many in each row."""
    width, blocks, size = _blocks(values.shape[1], k)
    groups = blocks // size
    keys = values & _MAGNITUDE if values.dtype == torch.int16 else values
    maxima = keys[:, : width * size * groups].view(len(keys), -1, groups).amax(1)
    reach = keys >= maxima.topk(k, dim=1).values[:, -1:]
    counts = reach.sum(1)
    packed = torch.full((len(keys), int(counts.max())), _LAST, device=values.device)
    filled = torch.arange(packed.shape[1], device=values.device) < counts[:, None]
    packed[filled] = _packed(keys[reach], torch.nonzero(reach)[:, 1])
    return packed, counts


def _reaching_on_cpu(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As `_reaching`."""
    from toploc import kernels

    data = np.require(values.numpy(), requirements=["C", "A"])
    bits = data if values.dtype == torch.int16 else data.view(np.int32)
    width = min(_WIDEST_CPU_BLOCK, data.shape[1] // (2 * k))
    counts = np.empty(len(data), dtype=np.int64)
    room, most = 0, 2 * k
    while most > room:  # a second time only if many entries are equal
        room = most
        packed = np.empty((len(data), room), dtype=np.int64)
        kernels.reaching(bits, k, width, packed, counts)
        most = int(counts.max())
    return torch.from_numpy(packed[:, :most]), torch.from_numpy(counts)
