"""TRL's GRPOTrainer on our tasks; this file runs in TRL's own environment.

    python trl_training.py SETTINGS.json EVALUATIONS.jsonl

Rewards come from our verifiers and held-out figures from our engine, as on our side. The clock is
TRL's alone: it starts with `train()`, after all imports and loading, and stands still while the
policy is measured.
"""

import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Measuring:
    """Measures the policy on held-out tasks with our engine and verifiers."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._model_dir = Path(settings["model"])
        self._tasks = settings["held_out"]
        self._max_tokens = settings["grpo"]["max_completion_length"]

    def of(self, trainer: Any) -> dict[str, float]:
        """As `rates`, of what a trainer has now."""
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            for file in self._model_dir.iterdir():
                if file.suffix != ".safetensors":
                    (directory / file.name).write_bytes(file.read_bytes())
            trainer.model.save_pretrained(directory)
            return self.rates(directory)

    def rates(self, directory: Path) -> dict[str, float]:
        """Kind -> solve rate at temperature 1 of a model directory."""
        import torch

        import verifiers
        from infra.inference.protocol import Request, SamplingParams
        from infra.inference.transformers_engine import TransformersEngine

        threads = torch.get_num_threads()
        engine = TransformersEngine(directory, "measured", revision="local")
        params = SamplingParams(temperature=1.0, max_tokens=self._max_tokens)
        requests = [
            Request(str(seed), tuple(engine.render(task["prompt"])[0]), seed)
            for seed, task in enumerate(self._tasks)
        ]
        done = [
            completion
            for start in range(0, len(requests), 256)
            for completion in engine.generate(requests[start : start + 256], params)
        ]
        torch.set_num_threads(threads)
        solved: dict[str, list[bool]] = defaultdict(list)
        for task, completion in zip(self._tasks, done, strict=True):
            score = verifiers.score(task["task_type"], completion.text, task["verification_info"])
            solved[task["kind"]].append(score.score == 1.0)
        return {kind: sum(each) / len(each) for kind, each in solved.items()}


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    sink = Path(sys.argv[2])
    sys.path.append(str(ROOT))  # behind the environment's own packages

    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    import verifiers
    from infra.inference.prompts import ChatTokenizer

    torch.set_num_threads(settings["threads"])
    chat = ChatTokenizer(Path(settings["model"]), "trl")
    measuring = Measuring(settings)

    def solved(prompts: list[Any], completion_ids: list[list[int]], **columns: Any) -> list[float]:
        rows = zip(prompts, completion_ids, columns["task_type"], columns["info"], strict=True)
        scores = []
        for prompt, ids, task_type, info in rows:
            text = chat.render(prompt)[1] + chat.decode(ids)
            scores.append(verifiers.score(task_type, text, info).score)
        return scores

    class Clock(TrainerCallback):
        """Counts the seconds of training alone, measures now and then, ends the training."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.began, self.paused = time.monotonic(), 0.0
            self.measure(state, control)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % settings["measure_every"] == 0:
                self.measure(state, control)

        def measure(self, state: Any, control: Any) -> None:
            now = time.monotonic()
            seconds = now - self.began - self.paused
            rates = measuring.of(trainer)
            self.paused += time.monotonic() - now
            with sink.open("a") as file:
                found = {"version": state.global_step, "seconds": seconds, "rates": rates}
                file.write(json.dumps(found) + "\n")
            mean = sum(rates.values()) / len(rates)
            if mean >= settings["target"] or seconds > settings["limit_seconds"]:
                control.should_training_stop = True

    columns = {
        "prompt": [task["prompt"] for task in settings["train"]],
        "task_type": [task["task_type"] for task in settings["train"]],
        "info": [task["verification_info"] for task in settings["train"]],
    }
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model=settings["model"],
            reward_funcs=solved,
            args=GRPOConfig(
                output_dir=directory,
                use_cpu=True,
                bf16=False,
                report_to=[],
                logging_strategy="no",
                save_strategy="no",
                disable_tqdm=True,
                gradient_checkpointing=False,
                model_init_kwargs={"dtype": "float32"},
                **settings["grpo"],
            ),
            train_dataset=Dataset.from_dict(columns),
            processing_class=AutoTokenizer.from_pretrained(settings["model"]),
            callbacks=[Clock()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
