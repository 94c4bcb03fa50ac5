"""The objective once more: plain Python over sequences in float64, written from the formulas.

Gradients are central differences of the loss, so they know nothing of how it was derived.
"""

import math
from dataclasses import dataclass, replace

from tasks.train.objective.config import ObjectiveConfig

STEP = 1e-5


@dataclass(frozen=True)
class Sequence:
    """The loss tokens of one sample; all lists have one entry per token."""

    now: list[float]
    old: list[float]
    behaviour: list[float]
    reference: list[float]
    entropy: list[float]
    advantage: float


def loss(sequences: list[Sequence], config: ObjectiveConfig) -> float:
    """The loss of a whole optimizer step."""
    return sum(_share(sequence, sequences, config) for sequence in sequences)


def gradients(
    sequences: list[Sequence], config: ObjectiveConfig
) -> tuple[list[list[float]], list[list[float]]]:
    """d loss / d log pi and d loss / d entropy of every token."""
    found: tuple[list[list[float]], list[list[float]]] = ([], [])
    for sequence in sequences:
        for name, rows in zip(("now", "entropy"), found, strict=True):
            rows.append([])
            for position, value in enumerate(getattr(sequence, name)):
                ends = []
                for moved in (value + STEP, value - STEP):
                    values = list(getattr(sequence, name))
                    values[position] = moved
                    changed = replace(sequence, **{name: values})
                    ends.append(_share(changed, sequences, config))
                rows[-1].append((ends[0] - ends[1]) / (2 * STEP))
    return found


def _share(sequence: Sequence, sequences: list[Sequence], config: ObjectiveConfig) -> float:
    """What one sequence adds to the loss of the step."""
    losses = _token_losses(sequence, config)
    if config.aggregation == "token_mean":
        return sum(losses) / sum(len(each.now) for each in sequences)
    if config.aggregation == "sequence_mean":
        return sum(losses) / len(losses) / len(sequences)
    return sum(losses) / len(sequences)


def _token_losses(sequence: Sequence, config: ObjectiveConfig) -> list[float]:
    weights = _weights(sequence, config)
    losses = []
    for t, weight in enumerate(weights):
        ratio, a = math.exp(sequence.now[t] - sequence.old[t]), sequence.advantage
        if a >= 0:
            gain = a * min(ratio, 1 + config.clip_high)
        else:
            upper = math.inf if config.delta is None else config.delta
            gain = a * min(max(ratio, 1 - config.clip_low), upper)
        value = -weight * gain
        if config.kl_coef:
            x = math.exp(sequence.reference[t]) / math.exp(sequence.now[t])
            share = ratio if config.kl_unbiased else 1.0
            value += config.kl_coef * share * min(10.0, x - math.log(x) - 1)
        losses.append(value - config.entropy_coef * sequence.entropy[t])
    return losses


def _weights(sequence: Sequence, config: ObjectiveConfig) -> list[float]:
    pairs = zip(sequence.old, sequence.behaviour, strict=True)
    ratios = [math.exp(old) / math.exp(behaviour) for old, behaviour in pairs]
    if config.correction == "none":
        return [1.0 for _ in ratios]
    if config.correction == "tis":
        return [min(ratio, config.ratio_high) for ratio in ratios]
    if config.correction == "icepop":
        low, high = config.ratio_low, config.ratio_high
        return [ratio if low <= ratio <= high else 0.0 for ratio in ratios]
    mean = math.prod(ratios) ** (1 / len(ratios))
    inside = all(config.outlier_low <= ratio <= config.outlier_high for ratio in ratios)
    kept = inside and config.sequence_low <= mean <= config.sequence_high
    return [float(kept) for _ in ratios]
