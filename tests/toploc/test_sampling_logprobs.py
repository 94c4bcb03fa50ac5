"""Log-probabilities of claimed tokens: those that the sampler gave, and torch's own."""

import math

import pytest
import torch

from toploc.filters import distance_outside
from toploc.sampling import SamplingRule, examine, sample


@pytest.mark.parametrize(
    "rule",
    [
        SamplingRule(1.0),
        SamplingRule(0.0),
        SamplingRule(0.6, 0.95),
        SamplingRule(1.3, 1.0, 7, 0.01),
    ],
    ids=["plain", "greedy", "top-p", "top-k and min-p"],
)
def test_a_verifier_finds_the_log_probabilities_that_the_sampler_gave(rule):
    logits = torch.randn(40, 300, generator=torch.Generator().manual_seed(1)) * 3
    seeds, positions = torch.full((40,), 77), torch.arange(40)
    tokens, given = sample(logits, seeds, positions, rule)
    found = examine(logits, tokens, 77, rule)
    assert torch.equal(found.margins, torch.zeros(40))
    assert torch.equal(found.logprobs, given)


def test_without_filters_they_are_the_log_softmax():
    logits = torch.randn(20, 50, generator=torch.Generator().manual_seed(2))
    tokens = torch.arange(20)
    found = examine(logits, tokens, 1, SamplingRule(0.7)).logprobs
    expected = (logits / 0.7).log_softmax(1).gather(1, tokens[:, None])[:, 0]
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_token_outside_the_vocabulary_is_impossible():
    logits = torch.zeros(1, 5)
    found = examine(logits, torch.tensor([9]), 1, SamplingRule(1.0))
    assert found.margins.isinf().all() and found.distances.isinf().all()
    assert found.logprobs.isneginf().all()


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        # Alone above its neighbour is nearer than all of what it lacks.
        (SamplingRule(1.0, 0.9), math.log(9.0)),
        (SamplingRule(2.0, 0.9), 2.0 * math.log(9.0)),
        (SamplingRule(1.0, 1.0, 2), math.log(30.0)),
        (SamplingRule(1.0, 1.0, 0, 0.05), math.log(0.6 * 0.05 / 0.01)),
    ],
    ids=["top-p", "top-p at temperature 2", "top-k", "min-p"],
)
def test_a_token_beside_the_candidates_is_as_far_as_the_logits_would_have_to_move(rule, lacks):
    logits = torch.tensor([0.6, 0.3, 0.09, 0.01]).log()[None] * rule.temperature
    tokens = torch.tensor([3])
    found = examine(logits, tokens, 7, rule)
    assert found.margins.isinf().all()
    raised = logits.clone()
    assert float(distance_outside(logits, tokens, rule)) == pytest.approx(lacks, rel=1e-4)
    raised[0, 3] += lacks * 1.01
    assert examine(raised, tokens, 7, rule).margins.isfinite().all()
    assert float(distance_outside(raised, tokens, rule)) == 0.0
