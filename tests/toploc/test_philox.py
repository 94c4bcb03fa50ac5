import numpy as np
import pytest
import torch

from toploc.floats import exp32, gumbel_of, log64
from toploc.philox import NOISE_DOMAIN, philox4x32, words_at, words_of_vocabulary

KNOWN_ANSWERS = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_known_answers_of_random123(counter, key, words):
    in_torch = philox4x32(
        tuple(torch.tensor([w]) for w in numbers(counter)),
        tuple(torch.tensor([w]) for w in numbers(key)),
    )
    assert [w.item() for w in in_torch] == numbers(words)


def test_compiled_code_and_torch_agree_on_many_counters():
    random = np.random.default_rng(0)
    seeds, positions = torch.from_numpy(random.integers(-(2**63), 2**63, (2, 50)))
    ids = torch.from_numpy(random.integers(0, 2**33, (50, 100)))
    positions[:25] &= 0xFFFF
    keys = (seeds & 0xFFFFFFFF, (seeds >> 32) & 0xFFFFFFFF)
    counter = (positions & 0xFFFFFFFF, (positions >> 32) & 0xFFFFFFFF)
    lanes = philox4x32(
        (ids >> 2, *(c[:, None] for c in counter), torch.full((50, 1), NOISE_DOMAIN)),
        tuple(key[:, None] for key in keys),
    )
    expected = torch.stack(lanes, -1).gather(-1, (ids & 3)[..., None])[..., 0]
    assert torch.equal(words_at(seeds, positions, ids), expected)


def test_words_are_those_of_the_counter():
    seed, position, token = 0x0123456789ABCDEF, 5, 1234567
    lanes = philox4x32(
        tuple(torch.tensor([w]) for w in (token >> 2, position, 0, NOISE_DOMAIN)),
        tuple(torch.tensor([w]) for w in (seed & 0xFFFFFFFF, seed >> 32)),
    )
    word = words_at(torch.tensor([seed]), torch.tensor([position]), torch.tensor([[token]]))
    assert int(word) == int(lanes[token & 3])


def test_the_whole_vocabulary_and_single_tokens_agree():
    seeds = torch.tensor([0, 1, 2**63 - 1, -1])
    positions = torch.tensor([0, 7, 2**40, 3])
    ids = torch.tensor([[0, 1001, 2, 3], [4, 5, 6, 7], [999, 0, 500, 1], [8, 8, 1000, 2]])
    every = words_of_vocabulary(seeds, positions, 1002)
    assert every.shape == (4, 1002)
    assert (every >= 0).all() and (every < 2**32).all()
    assert torch.equal(every.gather(1, ids), words_at(seeds, positions, ids))


def test_logarithm_and_exponential_are_accurate():
    x = torch.cat(
        [
            torch.logspace(-30, 30, 2001, dtype=torch.float64),
            1 - torch.logspace(-10, -1, 99, dtype=torch.float64),
        ]
    )
    assert torch.allclose(log64(x), torch.log(x), rtol=1e-14, atol=1e-300)
    y = -torch.linspace(0, 80, 10001)
    assert torch.allclose(exp32(y).double(), torch.exp(y.double()), rtol=1e-5, atol=0)
    assert exp32(torch.tensor([0.0])).item() == 1.0
    assert exp32(torch.tensor([-torch.inf, -1e30])).max() < 1e-35


def test_noise_is_finite_and_monotone_at_the_ends():
    words = torch.tensor([0, 1, 2**31, 2**32 - 2, 2**32 - 1])
    noise = gumbel_of(words)
    assert torch.isfinite(noise).all()
    assert (noise.diff() < 0).all()
    assert noise[0] == pytest.approx(33 * np.log(2), rel=1e-6)
