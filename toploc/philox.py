"""Philox4x32-10 (Salmon et al., 2011): a counter-based random function, in torch.

The same counter and key give the same words on any device, in any batch and after any restart. All
words are held in int64, whose multiplication wraps, so that high and low halves of a 64-bit product
are a shift and a mask. Shapes broadcast, which saves most of the first two rounds when only one of the
counter's words varies along a dimension.
"""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

NOISE_DOMAIN = 0x474D424C
"""Last counter word of the sampling noise ("GMBL"), apart from any later use of the same key."""

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox4x32(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four 32-bit words per counter; everything is int64 in [0, 2**32), shapes broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first = c0 * _MULTIPLIERS[0]
        second = c2 * _MULTIPLIERS[1]
        c0 = ((second >> 32) ^ (c1 ^ k0)) & _WORD
        c2 = ((first >> 32) ^ (c3 ^ k1)) & _WORD
        c1 = second & _WORD
        c3 = first & _WORD
        k0 = (k0 + _WEYL[0]) & _WORD
        k1 = (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def _streams(seeds: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Key and the three counter words that do not depend on the token, each [n, 1]."""
    seeds = seeds.to(torch.int64)[:, None]
    positions = positions.to(torch.int64)[:, None]
    domain = torch.full_like(positions, NOISE_DOMAIN)
    return (
        seeds & _WORD,
        (seeds >> 32) & _WORD,
        positions & _WORD,
        (positions >> 32) & _WORD,
        domain,
    )


def words_at(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """The 32-bit word of each (seed, position, token id): [n], [n] and [n, m] give [n, m].

    Four consecutive ids share a counter and take one word of its output each.
    """
    k0, k1, c1, c2, c3 = _streams(seeds, positions)
    ids = token_ids.to(torch.int64)
    four = torch.broadcast_tensors(*philox4x32((ids >> 2, c1, c2, c3), (k0, k1)))
    return torch.stack(four, -1).gather(-1, (ids & 3)[..., None]).squeeze(-1)


def words_of_vocabulary(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """As `words_at` for the ids 0 to vocabulary - 1, at a quarter of the work: [n, vocabulary]."""
    k0, k1, c1, c2, c3 = _streams(seeds, positions)
    blocks = torch.arange(-(-vocabulary // 4), device=seeds.device)[None, :]
    four = torch.broadcast_tensors(*philox4x32((blocks, c1, c2, c3), (k0, k1)))
    return torch.stack(four, -1).flatten(1)[:, :vocabulary]
