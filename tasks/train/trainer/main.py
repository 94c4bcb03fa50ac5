"""The trainer process: `python -m tasks.train.trainer.main RUN_DIR --until STEP [--owner PID]`.

Beyond one rank: `torchrun --nproc-per-node N -m tasks.train.trainer.main ...`.

A step's metrics are written first, then its checkpoint, then its weights. So weights that are there
have a checkpoint (with checkpoint_every = 1), and a step that was cut off at any point is trained
again from the checkpoint before it, or only its weights are written.
"""

import argparse
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from infra.storage.local import TEMP_PREFIX
from tasks.train.errors import TrainError
from tasks.train.trainer.metrics import Metrics
from tasks.train.trainer.run_files import (
    RunSettings,
    checkpoint_path,
    checkpointed_steps,
    selection_path,
    weights_path,
)
from tasks.train.trainer.sample import read_figures, read_selection
from tasks.train.trainer.trainer import Trainer

POLL_SECONDS = 0.02


def train(run_dir: Path, until: int, owner: psutil.Process | None) -> None:
    """Train up to and with rollout step `until`, or until the owner is gone."""
    settings = RunSettings.read(run_dir)
    trainer = Trainer(settings.model_dir, settings.config, settings.objective, settings.seed)
    trainer.rehearse()
    done = checkpointed_steps(run_dir)
    if done:
        trainer.restore(checkpoint_path(run_dir, done[-1]))
        _publish(trainer, run_dir)
    metrics = Metrics(run_dir, trainer.step) if trainer.ranks.first else None
    while trainer.step < until:
        waiting = time.perf_counter()
        selection = selection_path(run_dir, trainer.step + 1)
        while alive(owner) and not selection.exists():
            time.sleep(POLL_SECONDS)
        # What each rank sees for itself may have changed between two of them.
        if not trainer.ranks.first_says(alive(owner)):
            return
        waited = time.perf_counter() - waiting
        values = trainer.train_step(read_selection(selection))
        values |= {"time/wait_for_batch": waited, **read_figures(selection)}
        if metrics is not None:
            metrics.add(trainer.step, values)
            print(json.dumps({"step": trainer.step, **values}), flush=True)
        if trainer.step % settings.config.checkpoint_every == 0 or trainer.step == until:
            trainer.save(checkpoint_path(run_dir, trainer.step))
            if trainer.ranks.first:
                _prune(run_dir, settings.config.keep)
        _publish(trainer, run_dir)


def _publish(trainer: Trainer, run_dir: Path) -> None:
    path = weights_path(run_dir, trainer.step)
    if not path.exists():
        trainer.save_weights(path)


def _prune(run_dir: Path, keep: int) -> None:
    """Remove old checkpoints; one that is partly removed has no checkpoint's name."""
    for step in checkpointed_steps(run_dir)[:-keep]:
        path = checkpoint_path(run_dir, step)
        gone = path.rename(path.with_name(f"{TEMP_PREFIX}{path.name}"))
        shutil.rmtree(gone)


def alive(process: psutil.Process | None) -> bool:
    """Whether a process (another one of the same number does not count) still runs."""
    return process is None or (process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


@contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Wait until no other trainer works in the directory; the kernel frees the lock of a dead one.

    The first rank holds it; the others meet it in the first collective operation.
    """
    if os.environ.get("RANK", "0") != "0":
        yield
        return
    with open(run_dir / "trainer.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for folder in ("checkpoints", "weights"):
            for left in (run_dir / folder).glob(f"{TEMP_PREFIX}*"):
                shutil.rmtree(left)
        yield


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when done or left alone, 1 when training failed."""
    parser = argparse.ArgumentParser(prog="tasks.train.trainer.main", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="directory with trainer.json")
    parser.add_argument("--until", type=int, required=True, help="last rollout step")
    parser.add_argument("--owner", type=int, help="end when this process is gone")
    given = parser.parse_args(arguments)
    try:
        owner = None if given.owner is None else psutil.Process(given.owner)
    except psutil.NoSuchProcess:
        return 0
    try:
        with _alone(given.run_dir):
            train(given.run_dir, given.until, owner)
    except TrainError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
