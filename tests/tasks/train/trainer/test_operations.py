"""Counted operations against those that torch counts while a step is trained."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tasks.train.objective import ObjectiveConfig
from tasks.train.trainer import LoraSettings
from tasks.train.trainer.packed import pack_row
from tests.tasks.train.trainer.helpers import make_samples, new_trainer


@pytest.mark.parametrize(
    ("kl_coef", "changes", "tolerance"),
    [
        (0.0, {"optimizer_steps": 1}, 0.005),
        (0.05, {"optimizer_steps": 3}, 0.005),  # passes for old and reference log-probabilities
        # the first of two layers needs no gradient of its input, which is not told apart
        (0.0, {"optimizer_steps": 2, "lora": LoraSettings(rank=4)}, 0.06),
    ],
)
def test_a_step_takes_the_operations_that_are_reported(
    kl_coef: float, changes: dict, tolerance: float
) -> None:
    trainer = new_trainer(ObjectiveConfig(kl_coef=kl_coef), **changes)
    # torch's counter has no formula for attention on CPUs
    trainer._operations = replace(trainer._operations, attention=0)
    samples = make_samples(prompts=6, longest=60)
    with FlopCounterMode(display=False) as counter:
        metrics = trainer.train_step(samples)
    again = 2 * trainer._operations.head * sum(len(sample.output_ids) for sample in samples)
    counted = counter.get_total_flops() - again  # the head's logits, made again going backward
    reported = 1e12 * metrics["perf/tflops_per_rank"] * metrics["time/step"]
    assert reported == pytest.approx(counted, rel=tolerance)


def test_attention_counts_its_pairs() -> None:
    operations = new_trainer()._operations
    (sample,) = make_samples(prompts=1, per_prompt=1)
    for padded in (True, False):
        row = pack_row([[sample]], torch.device("cpu"), padded)
        attention = operations.forward([row]) - replace(operations, attention=0).forward([row])
        # per layer and head: half of the pairs, two products of 2 operations a dimension
        assert attention == 2 * sample.tokens**2 * operations.attention
        assert operations.bundle([sample]) == operations.forward([row])
    assert operations.attention == 256  # 2 layers, 4 heads of 32


def test_operations_beyond_64_bits_are_reported() -> None:
    trainer = new_trainer()
    trainer._operations = replace(trainer._operations, body=10**19)
    samples = make_samples(prompts=2)
    metrics = trainer.train_step(samples)
    reported = 1e12 * metrics["perf/tflops_per_rank"] * metrics["time/step"]
    assert reported > 2e19 * sum(len(sample.output_ids) for sample in samples)
