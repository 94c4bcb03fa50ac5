"""Samples and settings for the trainer, and processes that train."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasks.train.objective import ObjectiveConfig
from tasks.train.trainer import Sample, TrainerConfig
from tasks.train.trainer.trainer import Trainer

NANO = Path(__file__).parents[4] / "infra" / "models" / "nano" / "s"
VOCABULARY = 283


def make_samples(
    seed: int = 0, prompts: int = 4, per_prompt: int = 5, longest: int = 40, temperature: float = 1
) -> list[Sample]:
    """Random tokens in groups of one prompt, with any log-probabilities and advantages."""
    rng = np.random.default_rng(seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, VOCABULARY, count).tolist())

    made = []
    for group in range(prompts):
        prompt = ids(int(rng.integers(2, longest)))
        for number in range(per_prompt):
            output = ids(int(rng.integers(1, longest)))
            logprobs = rng.uniform(-6, -2, len(output)).astype(np.float32)
            name, advantage = f"{seed}-{group}-{number}", float(rng.normal())
            made.append(Sample(name, prompt, output, logprobs, advantage, temperature))
    return made


def settings(**changes: Any) -> TrainerConfig:
    """Settings under which a few steps change a nano model visibly."""
    usual = {
        "learning_rate": 1e-3,
        "warmup_steps": 2,
        "optimizer_steps": 2,
        "micro_batch_tokens": 400,
        "max_grad_norm": 1.0,
    }
    return TrainerConfig.model_validate(usual | changes)


def new_trainer(objective: ObjectiveConfig | None = None, seed: int = 3, **changes: Any) -> Trainer:
    """A trainer of the smallest nano model."""
    return Trainer(NANO, settings(**changes), objective or ObjectiveConfig(kl_coef=0.0), seed)


def weights(trainer: Trainer) -> torch.Tensor:
    """All trained parameters, one after another."""
    return torch.cat([p.detach().flatten() for p in trainer.policy.parameters() if p.requires_grad])


def start_processes(work: Callable[..., None], *arguments: tuple[Any, ...]) -> list[Any]:
    """Start one process per tuple of arguments; a fork has torch and the model class imported."""
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=_single_threaded, args=(work, given)) for given in arguments]
    for process in started:
        process.start()
    return started


def _single_threaded(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)  # the parent's pool of threads is not in a fork
    work(*arguments)


def as_rank(
    rank: int, world: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    """Do some work as one rank, in the environment that torchrun gives it."""
    given = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in given.items()})
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    work(*arguments)


def run_ranks(world: int, work: Callable[..., None], *arguments: Any) -> None:
    """Run a function in `world` processes that train together."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [(rank, world, port, work, arguments) for rank in range(world)]
    started = start_processes(as_rank, *ranks)
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * world
