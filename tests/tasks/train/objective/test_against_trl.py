"""Loss, gradients and advantages against TRL's GRPO on the same tensors, in its own environment.

Skipped where `.peers/trl` is not made; `python -m tests.bench.rl_vs_trl` makes it.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import infra.models
from tasks.train.objective import ObjectiveConfig, policy_loss
from tasks.train.objective.advantages import deviation, group_advantages
from tasks.train.objective.aggregation import normaliser
from tests.bench.peers import HOME

PROGRAM = Path(__file__).with_name("trl_process.py")
PYTHON = HOME / "trl" / "bin" / "python"
MODEL = Path(infra.models.__file__).parent / "nano" / "s"
TOLERANCE = 1e-5
TRL_EPS = 1e-4
GROUP, SAMPLES, WIDTH = 4, 12, 9
END = 257
"""<|end|> of the nano models."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.is_file(), reason="TRL's environment .peers/trl is not made"),
]

AGGREGATIONS = {
    "dapo": "token_mean",
    "bnpo": "token_mean",
    "grpo": "sequence_mean",
    "luspo": "sequence_sum",
    "dr_grpo": "sequence_sum",
}
BASE = {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.2, "beta": 0.0} | {
    "scale_rewards": "none"
}
SCALING = {"none": "none", "group": "std", "batch": "batch_std"}
CORRECTIONS = {None: "none", "token_truncate": "tis", "token_mask": "icepop"}


def make_variants() -> list[dict[str, Any]]:
    """Each option that both have, against a base, and some together."""
    changes: list[dict[str, Any]] = [{"loss_type": name} for name in AGGREGATIONS]
    changes += [{"delta": 2.0}, {"delta": 4.0}, {"epsilon": 0.1, "epsilon_high": 0.28}]
    changes += [{"beta": 0.05}, {"beta": 0.05, "use_bias_correction_kl": False}]
    changes += [{"scale_rewards": "group"}, {"scale_rewards": "batch"}]
    changes += [{"entropy_coef": 0.01}, {"mask_truncated_completions": True}]
    every = {"delta": 4.0, "beta": 0.05, "epsilon_high": 0.28, "scale_rewards": "group"}
    variants = []
    for mode in CORRECTIONS:
        correction = {"vllm_importance_sampling_mode": mode} if mode else {}
        if mode:
            correction["vllm_importance_sampling_clip_max"] = 2.0
        if mode == "token_mask":
            correction["vllm_importance_sampling_clip_min"] = 0.5
        own = [*changes, *({**every, "loss_type": name} for name in AGGREGATIONS)]
        variants += [
            {"config": BASE | correction | change, "correct": mode is not None} for change in own
        ]
    return variants


def make_arrays() -> dict[str, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(3))
    shape = SAMPLES, WIDTH
    sizes = rng.integers(1, WIDTH + 1, SAMPLES)
    sizes[0] = WIDTH
    ids = rng.integers(7, 30, shape)
    ended = rng.random(SAMPLES) < 0.7
    ids[np.arange(SAMPLES)[ended], sizes[ended] - 1] = END
    now = -rng.gamma(1.5, 0.8, shape)
    old = now + rng.normal(0, 0.6, shape)
    arrays = {
        "now": now,
        "old": old,
        "behaviour": old + rng.normal(0, 0.6, shape),
        "reference": now + rng.normal(0, 0.6, shape),
        "entropy": rng.gamma(2.0, 0.5, shape),
        "rewards": rng.random(SAMPLES),
    }
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    arrays["rewards"][4:8] = 0.9  # a group without signal
    return {**arrays, "ids": ids, "sizes": sizes, "group": np.array(GROUP)}


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    return make_arrays()


@pytest.fixture(scope="module")
def theirs(arrays: dict[str, np.ndarray], tmp_path_factory: Any) -> list[dict[str, np.ndarray]]:
    directory = tmp_path_factory.mktemp("trl")
    source, sink = directory / "in.npz", directory / "out.npz"
    variants = make_variants()
    np.savez(source, variants=np.array(json.dumps(variants)), **arrays)
    done = subprocess.run(
        [str(PYTHON), "-I", str(PROGRAM), str(MODEL), str(source), str(sink)],
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    results: list[dict[str, np.ndarray]] = [{} for _ in variants]
    with np.load(sink) as archive:
        for key in archive.files:
            number, _, name = key.partition("/")
            results[int(number)][name] = archive[key]
    return results


def describe(variant: dict[str, Any]) -> str:
    changed = {
        name.removeprefix("vllm_importance_sampling_"): value
        for name, value in variant["config"].items()
        if BASE.get(name) != value
    }
    return " ".join(f"{name}={value}" for name, value in changed.items())


@pytest.mark.parametrize("number", range(len(make_variants())), ids=map(describe, make_variants()))
def test_same_loss_and_gradients(
    number: int, arrays: dict[str, np.ndarray], theirs: list[dict[str, np.ndarray]]
) -> None:
    config, result = make_variants()[number]["config"], theirs[number]
    mode = config.get("vllm_importance_sampling_mode")
    objective = ObjectiveConfig(
        advantage=SCALING[config["scale_rewards"]],
        clip_low=config["epsilon"],
        clip_high=config["epsilon_high"],
        delta=config.get("delta"),
        kl_coef=config["beta"],
        kl_unbiased=config.get("use_bias_correction_kl", True),
        entropy_coef=config.get("entropy_coef", 0.0),
        correction=CORRECTIONS[mode],
        ratio_low=0.5,
        ratio_high=2.0,
        aggregation=AGGREGATIONS[config["loss_type"]],
    )
    groups = arrays["rewards"].astype(np.float64).reshape(-1, GROUP).tolist()
    advantages = np.array(group_advantages(groups, objective.advantage)).ravel()
    theirs_scaled = advantages * trl_shrinkage(groups, objective.advantage)
    np.testing.assert_allclose(result["advantages"], theirs_scaled, atol=TOLERANCE)

    sizes = arrays["sizes"].tolist()
    ids = arrays["ids"]
    used = [
        not config.get("mask_truncated_completions") or ids[row, size - 1] == END
        for row, size in enumerate(sizes)
    ]
    inside = np.arange(WIDTH) < arrays["sizes"][:, None]

    def flat(name: str) -> torch.Tensor:
        return torch.tensor(arrays[name][inside])

    sequence = torch.repeat_interleave(torch.arange(SAMPLES), torch.tensor(sizes))
    now, entropy = flat("now").requires_grad_(), flat("entropy").requires_grad_()
    terms = policy_loss(
        now,
        flat("old"),
        flat("behaviour"),
        flat("reference"),
        entropy,
        torch.tensor(result["advantages"])[sequence],
        torch.tensor(used)[sequence],
        sequence,
        normaliser(
            (size if use else 0 for size, use in zip(sizes, used, strict=True)),
            objective.aggregation,
        ),
        objective,
    )
    scale = 1 / WIDTH if config["loss_type"] == "dr_grpo" else 1.0  # its constant divisor
    (scale * terms.loss).backward()
    assert abs(scale * terms.loss.item() - result["loss"]) < TOLERANCE
    for tensor, name in ((now, "grad_now"), (entropy, "grad_entropy")):
        ours = np.zeros(len(now)) if tensor.grad is None else tensor.grad.numpy()
        np.testing.assert_allclose(ours, result[name][inside], rtol=0, atol=TOLERANCE)
        assert not result[name][~inside].any()


def trl_shrinkage(groups: list[list[float]], form: str) -> np.ndarray:
    """TRL divides by std + 1e-4, which we do not."""
    if form == "none":
        return np.ones(SAMPLES)
    whole = deviation([reward for group in groups for reward in group])
    stds = [whole if form == "batch_std" else deviation(group) for group in groups]
    return np.repeat([std / (std + TRL_EPS) for std in stds], GROUP)
