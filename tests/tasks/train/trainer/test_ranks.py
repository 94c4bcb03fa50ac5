"""FSDP2: two processes train as one does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tasks.train.objective import ObjectiveConfig
from tasks.train.trainer import LoraSettings
from tests.tasks.train.trainer.helpers import make_samples, new_trainer, run_ranks, weights

OBJECTIVE = ObjectiveConfig(kl_coef=0.05, entropy_coef=0.01)
NAMES = ("loss", "optim/grad_norm", "policy/kl", "policy/tokens", "policy/ratio_max")


def train(directory: Path, changes: dict) -> None:
    """Two steps, a checkpoint, a version, and a third step; rank 0 writes what came out."""
    if changes.get("lora"):
        changes = changes | {"lora": LoraSettings(rank=4)}
    trainer = new_trainer(OBJECTIVE, **changes)
    # three samples: one rank has none in the last minibatch and goes along with a filler
    batches = [make_samples(1), make_samples(2, prompts=1, per_prompt=3), make_samples(3)]
    metrics = [trainer.train_step(batch) for batch in batches[:2]]
    poison = [replace(sample, advantage=3e38) for sample in make_samples(4)]
    assert trainer.train_step(poison)["optim/skipped"] == 2
    assert trainer.ranks.first_says(trainer.ranks.first)
    assert not trainer.ranks.first_says(not trainer.ranks.first)
    trainer.save(directory / "checkpoint")
    trainer.save_weights(directory / "weights")
    metrics.append(trainer.train_step(batches[2]))
    if trainer.ranks.first:
        figures = [{name: step[name] for name in NAMES} for step in metrics]
        (directory / "metrics.json").write_text(json.dumps(figures))


def read(directory: Path) -> list[dict[str, float]]:
    return json.loads((directory / "metrics.json").read_text())


@pytest.mark.parametrize("changes", [{"activation_checkpointing": True}, {"lora": True}])
def test_two_processes_have_the_losses_of_one(tmp_path, changes: dict) -> None:
    both = {}
    for world in (1, 2):
        both[world] = tmp_path / str(world)
        both[world].mkdir()
    train(both[1], changes)
    run_ranks(2, train, both[2], changes)
    for one, two in zip(read(both[1]), read(both[2]), strict=True):
        for name in NAMES:
            assert two[name] == pytest.approx(one[name], rel=1e-4, abs=1e-5), name
        assert two["loss"] == pytest.approx(one["loss"], abs=1e-5)
    # a checkpoint of two processes is read by one
    if changes.get("lora"):
        changes = changes | {"lora": LoraSettings(rank=4)}
    resumed = new_trainer(OBJECTIVE, **changes)
    resumed.restore(both[2] / "checkpoint")
    third = resumed.train_step(make_samples(3))
    assert third["loss"] == pytest.approx(read(both[1])[2]["loss"], abs=1e-5)
    from safetensors.torch import load_file

    one, two = (load_file(both[world] / "weights" / "model.safetensors") for world in (1, 2))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-4)


def mixed(directory: Path) -> None:
    """One step in bfloat16, sharded over a single process."""
    trainer = new_trainer(OBJECTIVE, dtype="bfloat16")
    metrics = trainer.train_step(make_samples(1))
    assert {p.dtype for p in trainer.policy.parameters()} == {torch.float32}
    trainer.save_weights(directory / "weights")
    (directory / "metrics.json").write_text(json.dumps([metrics]))


@pytest.mark.slow
def test_bfloat16_is_near_float32_and_masters_stay_float32(tmp_path) -> None:
    run_ranks(1, mixed, tmp_path)
    exact = new_trainer(OBJECTIVE)
    expected = exact.train_step(make_samples(1))
    assert read(tmp_path)[0]["loss"] == pytest.approx(expected["loss"], abs=0.02)
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "weights" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    assert weights(exact).dtype == torch.float32
