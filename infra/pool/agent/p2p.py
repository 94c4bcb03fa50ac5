"""The id by which peers reach a node's stage of a model, from the seed that the stage is given.

A stage makes its secret key from `${WORKER_P2P_SEED}` and is reached by the public key in hex. The
way is that of the original's stages (prime-iroh: rand's StdRng from a number, then ed25519), bit
for bit: the number is drawn out to a key of ChaCha with 12 rounds by PCG32 (rand_core 0.6), and the
first 32 bytes of its stream are the secret key.
"""

import struct

from toploc.signing import SigningKey

_WORD, _LONG = 2**32 - 1, 2**64 - 1
_MULTIPLIER, _INCREMENT = 6364136223846793005, 11634580027462260723
_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
_DOUBLE_ROUNDS = 6
_STEPS = ((0, 1, 3, 16), (2, 3, 1, 12), (0, 1, 3, 8), (2, 3, 1, 7))
"""Of a quarter round: a += b, d = (d ^ a) <<< n, as places in (a, b, c, d)."""


def p2p_id(seed: int) -> str:
    """64 hex digits for a seed of 64 bits."""
    return SigningKey(_first_block(_drawn_out(seed))[:32]).node_id


def _drawn_out(seed: int) -> bytes:
    state, words = seed, []
    for _ in range(8):
        state = (state * _MULTIPLIER + _INCREMENT) & _LONG
        words.append(_rotated(((state >> 18) ^ state) >> 27 & _WORD, 32 - (state >> 59)))
    return struct.pack("<8I", *words)


def _first_block(key: bytes) -> bytes:
    """ChaCha12 with counter and nonce 0."""
    start = [*_SIGMA, *struct.unpack("<8I", key), 0, 0, 0, 0]
    block = list(start)
    for _ in range(_DOUBLE_ROUNDS):
        for turn in (0, 1):  # down the columns, then along the diagonals
            for column in range(4):
                _quarter(block, [4 * row + (column + turn * row) % 4 for row in range(4)])
    return struct.pack("<16I", *((a + b) & _WORD for a, b in zip(block, start, strict=True)))


def _quarter(block: list[int], places: list[int]) -> None:
    for step_a, step_b, step_d, bits in _STEPS:
        a, b, d = places[step_a], places[step_b], places[step_d]
        block[a] = (block[a] + block[b]) & _WORD
        block[d] = _rotated(block[d] ^ block[a], bits)


def _rotated(word: int, left: int) -> int:
    return (word << left | word >> (32 - left)) & _WORD
