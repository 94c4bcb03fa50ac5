"""The chunked head against plain softmax in float64."""

import pytest
import torch

from tasks.train.trainer.logprobs import head_logprobs


def plain(hidden, weight, targets, inverse):
    spread = (hidden @ weight.T * inverse[:, None]).log_softmax(-1)
    return spread.gather(1, targets[:, None])[:, 0], -(spread.exp() * spread).sum(-1)


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_values_and_gradients(chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 8, generator=generator) for n in (23, 11))
    targets = torch.randint(0, 11, (23,), generator=generator)
    inverse = torch.linspace(0.5, 2, 23)
    up_logprobs, up_entropy = (torch.randn(23, generator=generator) for _ in range(2))
    ours = [hidden.requires_grad_(), weight.requires_grad_()]
    theirs = [tensor.detach().double().requires_grad_() for tensor in ours]
    logprobs, entropy = head_logprobs(*ours, targets, inverse, chunk)
    expected = plain(*theirs, targets, inverse.double())
    torch.testing.assert_close(logprobs.double(), expected[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(entropy.double(), expected[1], rtol=0, atol=1e-5)
    (logprobs @ up_logprobs + entropy @ up_entropy).backward()
    (expected[0] @ up_logprobs.double() + expected[1] @ up_entropy.double()).backward()
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left.grad.double(), right.grad, rtol=0, atol=1e-5)


def test_temperature_divides_the_logits() -> None:
    """Logits [2, 0]: the first token has -0.12693 at temperature 1 and -0.03505 at 0.6."""
    hidden, weight = torch.tensor([[1.0]] * 2), torch.tensor([[2.0], [0.0]])
    inverse = torch.tensor([1.0, 1 / 0.6])
    logprobs, _ = head_logprobs(hidden, weight, torch.tensor([0, 0]), inverse, 16)
    assert logprobs.tolist() == pytest.approx([-0.12693, -0.03505], abs=1e-5)


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, weight = torch.randn(5, 4, requires_grad=True), torch.randn(6, 4)
    logprobs, _ = head_logprobs(hidden, weight, torch.arange(5), torch.ones(5), 2)
    logprobs.sum().backward()
    assert weight.grad is None and hidden.grad.abs().sum() > 0


def test_extreme_logits_stay_finite() -> None:
    hidden = torch.full((2, 1), 1e4, requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]])
    logprobs, entropy = head_logprobs(hidden, weight, torch.tensor([0, 1]), torch.ones(2), 16)
    (logprobs.sum() + entropy.sum()).backward()
    assert torch.isfinite(logprobs).all() and torch.isfinite(entropy).all()
    assert torch.isfinite(hidden.grad).all()
