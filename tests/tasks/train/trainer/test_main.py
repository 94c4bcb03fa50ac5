"""The process: driven by files, resumes after any kill."""

import os
import random
import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.train.objective import ObjectiveConfig
from tasks.train.trainer import RunSettings, selection_path, write_selection
from tasks.train.trainer import main as trainer_main
from tasks.train.trainer.errors import BadSettings
from tasks.train.trainer.main import main
from tasks.train.trainer.run_files import checkpointed_steps, weights_path
from tests.tasks.train.trainer.helpers import (
    NANO,
    make_samples,
    run_ranks,
    settings,
    start_processes,
)

STEPS = 4


def write_settings(run_dir: Path, model_dir: Path = NANO, **changes) -> None:
    """What a start of the run begins with."""
    RunSettings(
        model_dir=model_dir,
        seed=5,
        config=settings(**changes),
        objective=ObjectiveConfig(kl_coef=0.01),
    ).write(run_dir)


def new_run(run_dir: Path, steps: int = STEPS, **changes) -> Path:
    """A run directory with its selections."""
    write_settings(run_dir, **changes)
    for step in range(1, steps + 1):
        write_selection(selection_path(run_dir, step), make_samples(seed=step))
    return run_dir


def version(run_dir: Path, step: int = STEPS) -> dict[str, torch.Tensor]:
    return load_file(weights_path(run_dir, step) / "model.safetensors")


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(tensor, right[name]) for name, tensor in left.items())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    run_dir = new_run(tmp_path_factory.mktemp("whole"))
    assert main([str(run_dir), "--until", str(STEPS)]) == 0
    return run_dir


def test_what_a_run_leaves(undisturbed: Path) -> None:
    assert sorted(path.name for path in (undisturbed / "weights").iterdir()) == [
        f"step_{step:06d}" for step in range(1, STEPS + 1)
    ]
    assert checkpointed_steps(undisturbed) == [STEPS - 1, STEPS]
    table = pq.read_table(undisturbed / "metrics.parquet")
    assert table["step"].to_pylist() == [1, 2, 3, 4]
    for name in ("loss", "mismatch_kl/all/mean", "optim/grad_norm", "time/wait_for_batch"):
        assert name in table.column_names
    assert list((undisturbed / "tensorboard").iterdir())


@pytest.mark.parametrize("every", [1, 3])
def test_stopped_and_started_again(tmp_path, undisturbed: Path, every: int) -> None:
    run_dir = new_run(tmp_path, checkpoint_every=every)
    for until in (1, 3, STEPS):
        assert main([str(run_dir), "--until", str(until)]) == 0
    assert_same(version(run_dir), version(undisturbed))
    assert pq.read_table(run_dir / "metrics.parquet")["step"].to_pylist() == [1, 2, 3, 4]


def test_a_version_lost_between_checkpoint_and_weights_is_written(tmp_path) -> None:
    run_dir = new_run(tmp_path, steps=2)
    assert main([str(run_dir), "--until", "2"]) == 0
    path = weights_path(run_dir, 2)
    kept = load_file(path / "model.safetensors")
    path.rename(path.with_name(".tmp-step_000002"))
    assert main([str(run_dir), "--until", "2"]) == 0
    assert_same(version(run_dir, 2), kept)
    assert not list(path.parent.glob(".tmp-*"))


def quiet_main(run_dir: Path, until: int, owner: int) -> None:
    """The process without its output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise SystemExit(main([str(run_dir), "--until", str(until), "--owner", str(owner)]))


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path, undisturbed: Path, kills: int) -> None:
    run_dir = new_run(tmp_path)
    rng = random.Random(kills)
    started = time.monotonic()
    (process,) = start_processes(quiet_main, (run_dir, 1, os.getpid()))
    process.join()
    one_step = time.monotonic() - started
    for _ in range(kills):
        (process,) = start_processes(quiet_main, (run_dir, STEPS, os.getpid()))
        process.join(rng.uniform(0, one_step))
        process.kill()
        process.join()
    (process,) = start_processes(quiet_main, (run_dir, STEPS, os.getpid()))
    process.join()
    assert process.exitcode == 0
    for step in range(1, STEPS + 1):
        assert_same(version(run_dir, step), version(undisturbed, step))
    assert pq.read_table(run_dir / "metrics.parquet")["step"].to_pylist() == [1, 2, 3, 4]


def test_waits_for_its_selection_and_ends_with_its_owner(tmp_path) -> None:
    run_dir = new_run(tmp_path, steps=1)
    (owner,) = start_processes(time.sleep, (600,))
    (trainer,) = start_processes(quiet_main, (run_dir, 2, owner.pid))
    while not weights_path(run_dir, 1).exists():
        assert trainer.is_alive()
        time.sleep(0.05)
    assert trainer.is_alive()
    owner.kill()
    owner.join()
    trainer.join()
    assert trainer.exitcode == 0 and not weights_path(run_dir, 2).exists()
    assert main([str(run_dir), "--until", "2", "--owner", str(owner.pid)]) == 0


def test_a_second_trainer_waits_for_the_first(tmp_path, undisturbed: Path) -> None:
    run_dir = new_run(tmp_path)
    both = start_processes(quiet_main, *[(run_dir, STEPS, os.getpid())] * 2)
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert_same(version(run_dir), version(undisturbed))


def test_a_run_keeps_its_settings(tmp_path, capsys) -> None:
    write_settings(tmp_path)
    write_settings(tmp_path)
    with pytest.raises(BadSettings, match="it has another config"):
        write_settings(tmp_path, learning_rate=0.5)
    (tmp_path / "trainer.json").write_text("{}")
    assert main([str(tmp_path), "--until", "1"]) == 1
    assert "BadSettings: trainer settings" in capsys.readouterr().err


def test_resources_and_the_place_of_the_model_may_change(tmp_path, undisturbed: Path) -> None:
    run_dir, moved = new_run(tmp_path / "run"), tmp_path / "moved"
    assert main([str(run_dir), "--until", "1"]) == 0
    shutil.copytree(NANO, moved)
    write_settings(run_dir, moved, keep=1, checkpoint_every=2, peak_tflops=1.0)
    assert main([str(run_dir), "--until", "3"]) == 0
    assert checkpointed_steps(run_dir) == [3]
    assert "perf/mfu" in pq.read_table(run_dir / "metrics.parquet").column_names
    assert_same(version(run_dir, 3), version(undisturbed, 3))


def test_a_run_keeps_its_start_model(tmp_path, capsys) -> None:
    run_dir, model = new_run(tmp_path / "run"), tmp_path / "model"
    assert main([str(run_dir), "--until", "1"]) == 0
    shutil.copytree(NANO, model)
    weights = load_file(model / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadSettings, match="it has another revision"):
        write_settings(run_dir, model)
    (run_dir / "trainer.json").unlink()
    write_settings(run_dir, model)
    assert main([str(run_dir), "--until", "2"]) == 1
    assert "BadCheckpoint" in capsys.readouterr().err


def train_as_one_of_two(run_dir: Path) -> None:
    """A rank that sees the owner in the first step if it is the first, later if it is not."""
    first = os.environ["RANK"] == "0"
    trainer_main.alive = lambda owner: first is not weights_path(run_dir, 1).exists()
    quiet_main(run_dir, 2, os.getpid())


@pytest.mark.slow
def test_ranks_go_on_and_end_together(tmp_path) -> None:
    run_dir = new_run(tmp_path, steps=2)
    run_ranks(2, train_as_one_of_two, run_dir)
    assert weights_path(run_dir, 1).exists() and not weights_path(run_dir, 2).exists()
