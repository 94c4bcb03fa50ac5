"""The RL trainer: from selected rollouts to the next version of the policy.

A rollout step N (from 1) trains policy version N-1 into version N; version 0 is the start model. In
one process, or under torchrun with the weights sharded over the ranks (FSDP2): the same code.

    Trainer(model_dir, config, objective, seed)
        .step                      rollout steps done, which is the policy's version
        .train_step(samples)       one rollout step; its metrics as {name: number}
        .save_weights(directory)   the policy in the layout of a model directory
        .save(directory)           a checkpoint; .restore(directory) goes on from it, bit by bit

The process `python -m tasks.train.trainer.main RUN_DIR --until STEP [--owner PID]` (under torchrun
beyond one rank) is driven by files of RUN_DIR alone, each of which appears whole or not at all:

    trainer.json                   reads   the model and the settings (`RunSettings.write`)
    selection/step_NNNNNN.parquet  waits   the samples of step N (`write_selection`)
    checkpoints/step_NNNNNN/       writes  safetensors and JSON, the newest few
    weights/step_NNNNNN/           writes  policy version N; never changes once it is there
    metrics.parquet, tensorboard/  writes  one row per step

It ends with 0 after step STEP, or when the process OWNER is gone. Killed at any moment and started
again, it goes on from its newest checkpoint with the same selections, and ends with the same
weights. Two of them never work in one directory: the second waits for the first.
"""

from tasks.train.trainer.config import LoraSettings, TrainerConfig
from tasks.train.trainer.run_files import RunSettings, selection_path, weights_path
from tasks.train.trainer.sample import Sample, read_selection, write_selection

__all__ = [
    "LoraSettings",
    "RunSettings",
    "Sample",
    "TrainerConfig",
    "read_selection",
    "selection_path",
    "weights_path",
    "write_selection",
]
