"""Log-probabilities of given tokens and entropies, without the logits of all rows at once.

Per row, with z = logits / temperature, less its logsumexp, and p = exp(z):

    logprob = z[target]        d logprob / d(logits / temperature) = onehot(target) - p
    entropy = -sum p z         d entropy / d(logits / temperature) = -p (z + entropy)

The head and the softmax run on `chunk` rows at a time, forward and again backward, so the memory is
chunk * vocabulary instead of rows * vocabulary. Softmax in float32; the gradient of the head's
weight is summed in float32.
"""

from typing import Any

import torch
from torch import Tensor


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, inverse: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropy, lse = (
            torch.empty(len(hidden), dtype=torch.float32, device=hidden.device) for _ in range(3)
        )
        for start in range(0, len(hidden), chunk):
            part = slice(start, start + chunk)
            z = _logits(hidden[part], weight, inverse[part])
            lse[part] = torch.logsumexp(z, -1)
            z.sub_(lse[part, None])
            logprobs[part] = z.gather(1, targets[part, None])[:, 0]
            entropy[part] = z.exp().mul_(z).sum(-1).neg_()
        ctx.save_for_backward(hidden, weight, targets, inverse, lse, entropy)
        ctx.chunk = chunk
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, inverse, lse, entropy = ctx.saved_tensors
        grad_logprobs, grad_entropy = grads
        if grad_logprobs is None:
            grad_logprobs = torch.zeros_like(lse)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = None
        if ctx.needs_input_grad[1]:
            grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        for start in range(0, len(hidden), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            z = _logits(hidden[part], weight, inverse[part]).sub_(lse[part, None])
            p = z.exp()
            slope = -grad_logprobs[part, None]
            if grad_entropy is not None:
                slope = slope - grad_entropy[part, None] * (z + entropy[part, None])
            d = p.mul_(slope)
            d.scatter_add_(1, targets[part, None], grad_logprobs[part, None])
            d.mul_(inverse[part, None])
            cast = d.to(weight.dtype)
            torch.mm(cast, weight, out=grad_hidden[part])
            if grad_weight is not None:
                grad_weight += torch.mm(cast.t(), hidden[part])
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        return grad_hidden, grad_weight, None, None, None


def _logits(hidden: Tensor, weight: Tensor, inverse: Tensor) -> Tensor:
    return torch.mm(hidden, weight.t()).float().mul_(inverse[:, None])


def head_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, inverse_temperatures: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets and entropies, both float32 [N] with gradient.

    Args:
        hidden: last hidden states [N, hidden size].
        weight: of the head, [vocabulary, hidden size], the dtype of `hidden`.
        targets: int64 [N].
        inverse_temperatures: float32 [N].
        chunk: rows whose logits exist at once.
    """
    logprobs, entropy = _HeadLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets, inverse_temperatures, chunk
    )
    return logprobs, entropy
