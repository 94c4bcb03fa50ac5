"""Loss and gradients of every variant against an independent float64 reference."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.train.objective import ObjectiveConfig, policy_loss
from tasks.train.objective.aggregation import normaliser
from tests.tasks.train.objective.reference import Sequence, gradients, loss

TOLERANCE = 1e-5


def make_sequences(seed: int) -> list[Sequence]:
    """Sequences with ratios on all sides of all bounds, some of them near the behaviour policy."""
    rng = np.random.Generator(np.random.Philox(seed))
    sequences = []
    for number, size in enumerate((1, 5, 3, 8, 4, 6)):
        now = -rng.gamma(1.5, 0.8, size)
        old = now + rng.normal(0, 0.5, size)
        near = number % 2
        behaviour = old + rng.normal(0, 0.004 if near else 0.7, size) * (1 if size > 1 else 0)
        sequences.append(
            Sequence(
                now=now.tolist(),
                old=old.tolist(),
                behaviour=behaviour.tolist(),
                reference=(now + rng.normal(0, 0.6, size)).tolist(),
                entropy=rng.gamma(2.0, 0.5, size).tolist(),
                advantage=float(rng.uniform(0.5, 2.0)) * (-1 if number in (1, 3) else 1),
            )
        )
    sequences[3].reference[4] = sequences[3].now[4] + 3.2  # beyond the bound of one token's k3
    sequences[3].old[2] = sequences[3].now[2] - 2.0  # beyond delta
    return sequences


def packed(sequences: list[Sequence], name: str, dtype: torch.dtype) -> Tensor:
    """A row with a prompt token (not a number) before each sequence."""
    rows = [[float("nan"), *getattr(sequence, name)] for sequence in sequences]
    return torch.tensor([value for row in rows for value in row], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum"])
@pytest.mark.parametrize("correction", ["none", "tis", "icepop", "geometric"])
def test_every_variant(correction: str, aggregation: str, dtype: torch.dtype) -> None:
    sequences = make_sequences(11)
    sizes = torch.tensor([len(sequence.now) + 1 for sequence in sequences])
    ids = torch.repeat_interleave(torch.tensor([3, 14, 1, 5, 92, 6]), sizes)
    mask = ~packed(sequences, "now", torch.float64).isnan()
    advantages = torch.repeat_interleave(
        torch.tensor([sequence.advantage for sequence in sequences]), sizes
    )
    divisor = normaliser((sizes - 1).tolist(), aggregation)
    divergences = ((0.0, True), (0.05, True), (0.05, False))
    for delta, (low, high), (kl_coef, kl_unbiased), entropy_coef in itertools.product(
        (None, 4.0), ((0.2, 0.2), (0.1, 0.28)), divergences, (0.0, 0.01)
    ):
        config = ObjectiveConfig(
            clip_low=low,
            clip_high=high,
            delta=delta,
            kl_coef=kl_coef,
            kl_unbiased=kl_unbiased,
            entropy_coef=entropy_coef,
            correction=correction,
            aggregation=aggregation,
        )
        now, entropy = (
            packed(sequences, name, dtype).requires_grad_() for name in ("now", "entropy")
        )
        old, behaviour, reference = (
            packed(sequences, name, dtype) for name in ("old", "behaviour", "reference")
        )
        terms = policy_loss(
            now, old, behaviour, reference, entropy, advantages, mask, ids, divisor, config
        )
        terms.loss.backward()
        expected = loss(sequences, config)
        assert abs(terms.loss.item() - expected) < TOLERANCE, config
        for tensor, rows in zip((now, entropy), gradients(sequences, config), strict=True):
            ours = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
            right = torch.tensor([value for row in rows for value in (0.0, *row)])
            assert (ours - right).abs().max() < TOLERANCE, config


def test_the_sequences_reach_every_bound() -> None:
    """Otherwise the comparison would say nothing about the clips."""
    reached, kept = set(), set()
    for each in make_sequences(11):
        ratios = np.exp(np.subtract(each.now, each.old))
        places = np.digitize(ratios, [0.72, 0.8, 1.2, 1.28, 4.0])
        reached |= {(int(place), each.advantage > 0) for place in places}
        drift = np.exp(np.mean(np.subtract(each.old, each.behaviour)))
        kept.add(bool(0.99 <= drift <= 1.01))
    assert {(0, False), (0, True), (4, False), (4, True), (5, False)} <= reached
    assert kept == {True, False}
