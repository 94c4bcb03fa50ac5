"""The metrics of a rollout step under their names: of its samples, and of the policy loss."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from tasks.train.objective.metrics import summarise
from tasks.train.trainer.sample import ALL, Sample

BY_KIND = {
    "mismatch_kl": "mismatch_kl/{}/mean",
    "mismatch_kl_std": "mismatch_kl/{}/std",
    "mismatch_kl_max": "mismatch_kl/{}/max",
    "entropy": "entropy/{}/mean",
    "masked_advantage_pos": "masked_advantage_pos/{}/mean",
    "masked_advantage_neg": "masked_advantage_neg/{}/mean",
}
"""Figures of the loss that are given over all tokens and by kind of task; others over all alone."""


def data_figures(samples: Sequence[Sample]) -> dict[str, float]:
    """Counts of a step's samples."""
    lengths = [len(sample.output_ids) for sample in samples]
    return {
        "data/samples": float(len(samples)),
        "data/trainable": float(sum(sample.trainable for sample in samples)),
        "data/output_tokens_mean": float(np.mean(lengths)),
        "data/output_tokens_max": float(max(lengths)),
        "data/tokens": float(sum(sample.tokens for sample in samples)),
    }


def policy_figures(sums: Tensor, maxima: Tensor, kinds: Sequence[str]) -> dict[str, float]:
    """Figures of the loss from `metrics.by_group`, a group for each kind of task."""
    found: dict[str, float] = {}
    for own, peaks, kind in zip(sums, maxima, kinds, strict=True):
        figures = summarise(own, peaks)
        if figures["tokens"]:
            found |= {shown.format(kind): figures[name] for name, shown in BY_KIND.items()}
    whole = summarise(sums.sum(0), maxima.amax(0))
    found |= {shown.format(ALL): whole.pop(name) for name, shown in BY_KIND.items()}
    return found | {f"policy/{name}": value for name, value in whole.items()}
