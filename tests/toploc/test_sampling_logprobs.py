"""Log-probabilities of claimed tokens: those that the sampler gave, and torch's own."""

import pytest
import torch

from toploc.sampling import SamplingRule, margins_and_logprobs, sample


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
    apart, found = margins_and_logprobs(logits, tokens, 77, rule)
    assert torch.equal(apart, torch.zeros(40))
    assert torch.equal(found, given)


def test_without_filters_they_are_the_log_softmax():
    logits = torch.randn(20, 50, generator=torch.Generator().manual_seed(2))
    tokens = torch.arange(20)
    _, found = margins_and_logprobs(logits, tokens, 1, SamplingRule(0.7))
    expected = (logits / 0.7).log_softmax(1).gather(1, tokens[:, None])[:, 0]
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_token_outside_the_vocabulary_is_impossible():
    logits = torch.zeros(1, 5)
    apart, found = margins_and_logprobs(logits, torch.tensor([9]), 1, SamplingRule(1.0))
    assert apart.isinf().all() and found.isneginf().all()
