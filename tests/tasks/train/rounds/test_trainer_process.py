"""The trainer as a child: revived when it dies, given up when it gets nowhere."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tasks.train.objective import ObjectiveConfig
from tasks.train.rounds.errors import TrainerFailed
from tasks.train.rounds.trainer_process import MAX_TRIES, TrainerProcess, TrainerResources
from tasks.train.trainer import RunSettings, selection_path, weights_path, write_selection
from tests.tasks.train.trainer.helpers import NANO, make_samples, settings

PATIENCE = 240.0


def new_run(run_dir: Path) -> Path:
    """A run directory without selections."""
    RunSettings(
        model_dir=NANO, seed=5, config=settings(), objective=ObjectiveConfig(kl_coef=0.0)
    ).write(run_dir)
    return run_dir


def select(run_dir: Path, step: int) -> None:
    write_selection(selection_path(run_dir, step), make_samples(seed=step))


def waited(process: TrainerProcess, version: int) -> None:
    """Until a version is there."""
    end = time.monotonic() + PATIENCE
    while not process.done(version):
        assert time.monotonic() < end
        time.sleep(0.05)


def kill(process: TrainerProcess) -> int:
    """kill -9, and until it is gone; its process id."""
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while process.pid is not None:
        time.sleep(0.01)
    return pid


def rank(file: Path, number: int) -> psutil.Process:
    """The rank that was started after so many others."""
    end = time.monotonic() + PATIENCE
    while not file.exists() or len(file.read_text().splitlines()) <= number:
        assert time.monotonic() < end
        time.sleep(0.01)
    return psutil.Process(int(file.read_text().splitlines()[number]))


def ended(process: psutil.Process) -> None:
    """Until a process is gone, or waits for nobody to take its exit code."""
    end = time.monotonic() + PATIENCE
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.01)


def version(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(weights_path(run_dir, step) / "model.safetensors")


def test_a_killed_trainer_is_started_again_and_progress_gives_it_new_tries(tmp_path) -> None:
    run_dir = new_run(tmp_path)
    with TrainerProcess(run_dir, 2, TrainerResources()) as process:
        for step in (1, 2):
            for _ in range(MAX_TRIES - 1):  # in sum more than the tries without progress
                dead = kill(process)
                assert process.done(step) is False
                assert process.pid not in (None, dead)
            select(run_dir, step)
            waited(process, step)
        assert process.done(2)
    assert weights_path(run_dir, 1).is_dir()


def test_a_trainer_that_gets_nowhere_is_given_up_with_its_last_words(tmp_path, monkeypatch) -> None:
    # what cannot even start, in place of the interpreter, as three real starts take long
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    end = time.monotonic() + PATIENCE
    with (
        TrainerProcess(tmp_path, 1, TrainerResources()) as process,
        pytest.raises(TrainerFailed, match="no such model") as failure,
    ):
        while time.monotonic() < end:
            assert process.done(1) is False
            time.sleep(0.02)
    words = (tmp_path / "trainer.log").read_text()
    assert words.count("no such model") == MAX_TRIES
    assert str(MAX_TRIES) in str(failure.value)


def test_it_ends_with_its_block(tmp_path) -> None:
    with TrainerProcess(new_run(tmp_path), 1, TrainerResources()) as process:
        pid = process.pid
    assert process.pid is None and not psutil.pid_exists(pid)


def test_no_rank_outlives_its_launcher_or_the_block(tmp_path, monkeypatch) -> None:
    # in place of torchrun, which starts each rank in a session of its own as well
    ranks, launcher = tmp_path / "ranks", tmp_path / "python"
    launcher.write_text(f"#!/bin/sh\nsetsid sleep 600 &\necho $! >> {ranks}\nexec sleep 600\n")
    launcher.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(launcher))
    with TrainerProcess(tmp_path, 1, TrainerResources()) as process:
        first = rank(ranks, 0)
        kill(process)
        assert first.is_running()
        assert process.done(1) is False  # started again
        second = rank(ranks, 1)
        ended(first)
        assert second.is_running()
    ended(second)


@pytest.mark.slow
def test_two_ranks_under_torchrun_train_as_one_process(tmp_path) -> None:
    runs = {}
    for processes in (1, 2):
        runs[processes] = new_run(tmp_path / str(processes))
        select(runs[processes], 1)
        select(runs[processes], 2)
        resources = TrainerResources(processes=processes)
        with TrainerProcess(runs[processes], 2, resources) as process:
            waited(process, 1)
            waited(process, 2)
    for step in (1, 2):
        one, two = version(runs[1], step), version(runs[2], step)
        assert one.keys() == two.keys()
        for name, tensor in one.items():
            torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-4)
