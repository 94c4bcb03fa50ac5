"""TRL's GRPO loss on given tensors; this file runs in TRL's own environment.

    python trl_process.py MODEL_DIR IN.npz OUT.npz

Advantages, ratios, corrections, clips, divisors are TRL's own code: only the sampler and the
model's forward pass are replaced, by what the file holds. Variants are a JSON list in `variants`.
"""

import json
import sys
import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

PROMPT_IDS = [5, 6]


class GivenTensors(GRPOTrainer):
    """TRL's trainer whose policies answer with given log-probabilities, [samples, width]."""

    given: dict[str, torch.Tensor]

    def _get_per_token_logps_and_entropies(
        self, model: Any, *args: Any, compute_entropy: bool = False, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        if model is self.ref_model:
            return self.given["reference"], None, None
        if compute_entropy:
            return self.given["now"], self.given["entropy"], None
        return self.given["old"], None, None


def answer(
    model_dir: str, variant: dict[str, Any], arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Loss, gradients and advantages of one variant."""
    given = {name: torch.tensor(arrays[name]) for name in ("now", "old", "reference", "entropy")}
    given["now"].requires_grad_()
    given["entropy"].requires_grad_()
    tokens = [row[: int(size)] for row, size in zip(arrays["ids"], arrays["sizes"], strict=True)]

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [PROMPT_IDS for _ in prompts],
            "completion_ids": [row.tolist() for row in tokens],
            "logprobs": [
                row[: len(own)].tolist()
                for row, own in zip(arrays["behaviour"], tokens, strict=True)
            ],
        }

    def reward_func(reward: list[float], **columns: Any) -> list[float]:
        return reward

    rows = [{"prompt": "a", "reward": float(value)} for value in arrays["rewards"]]
    with tempfile.TemporaryDirectory() as directory:
        trainer = GivenTensors(
            model=model_dir,
            reward_funcs=reward_func,
            args=GRPOConfig(
                output_dir=directory,
                use_cpu=True,
                bf16=False,
                report_to=[],
                per_device_train_batch_size=len(rows),
                gradient_accumulation_steps=1,
                steps_per_generation=1,
                num_iterations=2,  # so that the old log-probabilities are asked for
                num_generations=int(arrays["group"]),
                max_completion_length=arrays["ids"].shape[1],
                **variant["config"],
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(model_dir),
            rollout_func=rollout,
        )
    trainer.given = given
    trainer.use_vllm = variant["correct"]  # as if the given samples came from vLLM ...
    trainer._last_loaded_step = trainer.state.global_step  # ... and its weights were current
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    batch = trainer._generate_and_score_completions(rows)
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    grads = {
        name: torch.zeros_like(given[name]) if given[name].grad is None else given[name].grad
        for name in ("now", "entropy")
    }
    return {
        "loss": loss.detach().numpy(),
        "advantages": batch["advantages"].numpy(),
        **{f"grad_{name}": grad.numpy() for name, grad in grads.items()},
    }


def main() -> None:
    model_dir, source, sink = sys.argv[1:]
    torch.set_num_threads(1)
    with np.load(source) as archive:
        arrays = {name: archive[name] for name in archive.files}
    results = {}
    for number, variant in enumerate(json.loads(str(arrays.pop("variants")))):
        for name, value in answer(model_dir, variant, arrays).items():
            results[f"{number}/{name}"] = value
    np.savez(sink, **results)


if __name__ == "__main__":
    main()
