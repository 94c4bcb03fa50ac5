"""Weights for tokens that another policy sampled than the one the update starts from.

ratio = pi_old / mu: the trainer's probability at the start of the rollout step over the one that
the engine sampled with. It holds what engine, precision and staleness changed, and no gradient.
Left out means weight 0 in the numerator; the divisor stays, as it is fixed before the forward pass.

Sources: tis: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
training"; AReaL (arXiv 2505.24298) for the decoupled form. icepop: Ling Team 2025, "Small leak can
sink a great ship" (IcePop). geometric: geometric mean of the ratios as a trust test of sequences,
Li et al. 2025, "When speed kills stability".
"""

import torch
from torch import Tensor

from tasks.train.objective.config import ObjectiveConfig


def correction_weights(log_ratio: Tensor, sequence: Tensor, config: ObjectiveConfig) -> Tensor:
    """Weight of each loss token, [M], without gradient.

    Args:
        log_ratio: [M] log(pi_old / mu).
        sequence: [M] int64, numbers the sequences 0, 1, ...; all loss tokens of each are here.
        config: the correction and its bounds, which are inclusive.
    """
    ratio = log_ratio.detach().exp()
    match config.correction:
        case "none":
            return torch.ones_like(ratio)
        case "tis":
            return ratio.clamp(max=config.ratio_high)
        case "icepop":
            kept = (ratio >= config.ratio_low) & (ratio <= config.ratio_high)
            return torch.where(kept, ratio, 0.0)
        case "geometric":
            return _kept_sequences(log_ratio.detach(), ratio, sequence, config)[sequence]


def _kept_sequences(
    log_ratio: Tensor, ratio: Tensor, sequence: Tensor, config: ObjectiveConfig
) -> Tensor:
    """1 or 0 for each sequence, [S]."""
    counts = torch.bincount(sequence).to(ratio.dtype)
    sums = torch.zeros_like(counts).index_add(0, sequence, log_ratio)
    mean = (sums / counts.clamp(min=1)).exp()
    outlier = (ratio < config.outlier_low) | (ratio > config.outlier_high)
    outliers = torch.zeros_like(counts).index_add(0, sequence, outlier.to(ratio.dtype))
    kept = (mean >= config.sequence_low) & (mean <= config.sequence_high) & (outliers == 0)
    return kept.to(ratio.dtype)
