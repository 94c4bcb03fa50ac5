"""The policy loss of a packed row: two-sided clipping, KL, entropy, off-policy correction.

    J = 1/N sum_t w_t [ c_t min(min(r_t, delta) A_t, clip(r_t, 1 - low, 1 + high) A_t)
                        - kl_coef u_t k3_t + entropy_coef H_t ],      loss = -J

with r = pi / pi_old, c the correction weight (correction.py), w and N the aggregation
(aggregation.py), k3 = exp(d) - d - 1, d = log pi_ref - log pi (Schulman 2020, "Approximating KL
divergence"), taken on the current log-probabilities, so that it has a gradient. Two-sided clip:
INTELLECT-2 (arXiv 2505.07291); clipping apart below and above: DAPO (arXiv
2503.14476).

Invariants: tokens outside the mask are dropped before any arithmetic, so nothing that stands there
(NaN, infinity) reaches loss, gradient or metrics; the loss is a sum over one divisor given by the
caller, so the losses of pieces of a step add up to that of the whole.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.train.objective.aggregation import token_weights
from tasks.train.objective.config import ObjectiveConfig
from tasks.train.objective.correction import correction_weights
from tasks.train.objective.errors import BadNormaliser, MisshapenInput, MissingInput
from tasks.train.objective.metrics import token_figures

LOG_RATIO_BOUND = 20.0
"""Log ratios are cut here: exp stays finite, and with it the gradient of what a clip discards."""
KL_BOUND = 10.0
"""Highest k3 of one token, as in PRIME-RL: beyond it a single token would decide the step."""


@dataclass(frozen=True)
class LossTerms:
    """The loss of one packed row and what is reported of its loss tokens."""

    loss: Tensor
    """Scalar with gradient, in the dtype of the log-probabilities."""
    figures: Tensor
    """Float32 without gradient, [M, len(metrics.COLUMNS)]."""


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    entropy: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    sequence_ids: Tensor,
    normaliser: float,
    config: ObjectiveConfig,
) -> LossTerms:
    """Loss and metrics of one packed row of T tokens; all tensors are [T], index i is token i.

    Args:
        logprobs: of the current policy at the sampling temperature, float32 or float64; only they
            and `entropy` carry gradient.
        old_logprobs: of the trainer's policy at the start of the rollout step.
        behaviour_logprobs: as the engine sampled.
        reference_logprobs: needed with kl_coef above 0.
        entropy: of the current policy at each token's position; needed with entropy_coef above 0.
        advantages: the sequence's advantage at each of its tokens.
        mask: bool, True where a token carries loss (output tokens of trainable samples).
        sequence_ids: int64, the same at all tokens of one sequence; a sequence is never split.
        normaliser: aggregation.normaliser over the whole optimizer step.
        config: the objective.

    Raises MisshapenInput, MissingInput, BadNormaliser.
    """
    _check(
        logprobs.shape,
        old_logprobs=old_logprobs,
        behaviour_logprobs=behaviour_logprobs,
        reference_logprobs=reference_logprobs,
        entropy=entropy,
        advantages=advantages,
        mask=mask,
        sequence_ids=sequence_ids,
    )
    if not (math.isfinite(normaliser) and normaliser > 0):
        raise BadNormaliser(normaliser)
    if config.kl_coef and reference_logprobs is None:
        raise MissingInput("reference_logprobs", "kl_coef", config.kl_coef)
    if config.entropy_coef and entropy is None:
        raise MissingInput("entropy", "entropy_coef", config.entropy_coef)

    now, dtype = logprobs[mask], logprobs.dtype
    old = old_logprobs.detach()[mask].to(dtype)
    advantage = advantages.detach()[mask].to(dtype)
    sequence = torch.unique(sequence_ids[mask], return_inverse=True)[1]

    ratio = _bounded(now - old).exp()
    capped = ratio if config.delta is None else ratio.clamp(max=config.delta)
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    off_policy = _bounded(old - behaviour_logprobs[mask].to(dtype))
    correction = correction_weights(off_policy, sequence, config)
    token_loss = -correction * torch.minimum(capped * advantage, clipped * advantage)
    kl = None
    if reference_logprobs is not None:
        kl = k3(now, reference_logprobs.detach()[mask].to(dtype))
        token_loss = token_loss + config.kl_coef * (ratio * kl if config.kl_unbiased else kl)
    spread = None if entropy is None else entropy[mask].to(dtype)
    if spread is not None and config.entropy_coef:
        token_loss = token_loss - config.entropy_coef * spread
    weights = token_weights(sequence, config.aggregation, dtype)
    figures = token_figures(ratio, off_policy, correction, advantage, kl, spread, config)
    return LossTerms((weights * token_loss).sum() / normaliser, figures)


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate of KL(pi || pi_ref) from each sampled token: exp(d) - d - 1, in [0, KL_BOUND]."""
    d = _bounded(reference_logprobs - logprobs)
    return (d.exp() - d - 1).clamp(0.0, KL_BOUND)


def _bounded(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def _check(expected: torch.Size, **tensors: Tensor | None) -> None:
    if len(expected) != 1:
        raise MisshapenInput("logprobs", tuple(expected), (math.prod(expected),))
    for name, tensor in tensors.items():
        if tensor is not None and tensor.shape != expected:
            raise MisshapenInput(name, tuple(tensor.shape), tuple(expected))
