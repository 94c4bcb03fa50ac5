"""Philox4x32-10 (Salmon et al., 2011): a counter-based random function.

The same counter and key give the same words on any device, in any batch and after any restart.
Words are held in torch int64, where a product wraps, so its high half is a shift and a mask. Shapes
broadcast: the first rounds work on small arrays where only one word of the counter varies along a
dimension. On a CPU the noise is computed by compiled code, which a test holds against this.
"""

import torch
from torch import Tensor

from toploc.field import plain

_WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

NOISE_DOMAIN = 0x474D424C
"""Last counter word of the sampling noise ("GMBL"), apart from any later use of the same key."""


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit words per counter; all numbers are in [0, 2**32), shapes broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first = c0 * MULTIPLIERS[0]
        second = c2 * MULTIPLIERS[1]
        c0, c2 = ((second >> 32) & _WORD) ^ (c1 ^ k0), ((first >> 32) & _WORD) ^ (c3 ^ k1)
        c1, c3 = second & _WORD, first & _WORD
        k0, k1 = (k0 + WEYL[0]) & _WORD, (k1 + WEYL[1]) & _WORD
    return c0, c1, c2, c3


def words_at(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """The 32-bit word of each (seed, position, token id): [n], [n] and [n, m] give int64 [n, m].

    Four consecutive ids share a counter and take one word of its output each.
    """
    ids = token_ids.to(torch.int64)
    lanes = _noise_lanes(seeds, positions, ids >> 2)
    return lanes.gather(-1, (ids & 3)[..., None]).squeeze(-1)


def words_of_vocabulary(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """As `words_at` for the ids 0 to vocabulary - 1, at a quarter of the work: [n, vocabulary]."""
    blocks = torch.arange(-(-vocabulary // 4), device=seeds.device)[None, :]
    return _noise_lanes(seeds, positions, blocks).flatten(1)[:, :vocabulary]


def _noise_lanes(seeds: Tensor, positions: Tensor, blocks: Tensor) -> Tensor:
    """The four words of each counter (block, position, domain) under the key seed: [n, m, 4]."""
    seeds, positions = seeds.to(torch.int64), positions.to(torch.int64)
    if blocks.device.type == "cpu":
        from toploc import kernels

        given = (blocks, seeds, positions)
        return torch.from_numpy(kernels.noise_lanes(*(plain(own.numpy()) for own in given)))
    seeds, positions = seeds[:, None], positions[:, None]
    key = (seeds & _WORD, (seeds >> 32) & _WORD)
    domain = torch.full_like(positions, NOISE_DOMAIN)
    counter = (blocks, positions & _WORD, (positions >> 32) & _WORD, domain)
    shape = (len(seeds), blocks.shape[1])
    return torch.stack([w.expand(shape) for w in philox4x32(counter, key)], -1)
