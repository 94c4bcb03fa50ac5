"""How token losses become one number, exactly the same however a step is cut into pieces.

Every mode is a weighted token sum over one divisor that is known before the first forward pass:
loss = sum_t w_t l_t / normaliser. The normaliser counts the whole optimizer step (all micro-batches
of all ranks), so pieces add up and no rank has a divisor of its own. A sequence is never split over
rows, so its own length is known where its tokens are.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from tasks.train.objective.config import Aggregation


def normaliser(loss_lengths: Iterable[int], aggregation: Aggregation) -> float:
    """The divisor of an optimizer step, from the loss tokens of each of its sequences.

    token_mean: the loss tokens of the step. sequence_mean and sequence_sum: the sequences that have
    any. At least 1, so that a step without loss tokens has loss 0.
    """
    lengths = [length for length in loss_lengths if length > 0]
    return float(max(1, sum(lengths) if aggregation == "token_mean" else len(lengths)))


def token_weights(sequence: Tensor, aggregation: Aggregation, dtype: torch.dtype) -> Tensor:
    """Weight of each loss token, [M]; `sequence` [M] int64 numbers the sequences 0, 1, ..."""
    if aggregation != "sequence_mean":
        return torch.ones(sequence.shape, dtype=dtype, device=sequence.device)
    return torch.bincount(sequence)[sequence].to(dtype).reciprocal()
