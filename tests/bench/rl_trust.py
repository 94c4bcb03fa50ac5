"""How well the check of rollouts tells old weights and other lies from honest work.

A policy is trained for some rollout steps in this process, by the settings of the profile rl-local
after its warm-up; every version is kept. Then jobs are answered with weights that are d versions
older than claimed, and judged by the claimed ones, with the calibrated limits of the model that
training began with. Small steps of training lie within the noise that the limits allow for, so
detection is given by distance, per sample and per upload of one job; distance 0 is honest work.
The peer is TOPLOC's decision on the same proofs with the limits of its paper.

    python -m tests.bench.rl_trust [--steps 16] [--jobs 2] [--learning-rate 2e-4]

Prints JSON lines: `detect/old_weights_<d>` and other `detect/<attack>`, ours and peer: share of
samples refused; `/upload`: share of uploads that are refused as a lie; `false_refusals`.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from infra.inference.prompts import ChatTokenizer
from infra.inference.transformers_engine import TransformersEngine
from infra.models import registry
from tasks.generate.config import SamplingConfig
from tasks.generate.ingest import completion_text
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.job import RolloutJob
from tasks.train.rollouts.rewards import rewarded
from tasks.train.rollouts.work import sample_groups, signed, trace
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.plan import Planner
from tasks.train.rounds.tasks import TaskChoice, read_split
from tasks.train.trainer import Sample, TrainerConfig
from tasks.train.trainer.trainer import Trainer
from tasks.validate.config import ValidateConfig
from tasks.validate.work import judge
from tests.bench.rl_tasks import write_split
from toploc.signing import SigningKey
from toploc.verdict import judge_proofs

BENCH = "rl_trust"
START = "tracemill/nano-rl"
CALIBRATED_BY = "tracemill/nano-m"
OTHER = "tracemill/nano-s"
DISTANCES = (0, 1, 2, 4, 8)
CONFIG = ValidateConfig(batch_size=128)
KEY = SigningKey(b"n" * 32)
TOKENIZER = ChatTokenizer(registry.materialise(START), START)

Rows = list[dict[str, Any]]


def planner(directory: Path) -> Planner:
    """Jobs over spelling and sorting."""
    split = write_split(directory, ["spell_backward", "number_sorting"], 256)
    return Planner(
        run_id="trust",
        seed=5,
        model=START,
        split=read_split(TaskChoice(dataset=str(split), held_out=8)),
        tokenizer=TOKENIZER,
        sampling=SamplingConfig(temperature=1.0, max_tokens=48),
        rounds=RoundsConfig(group_size=8, groups_per_job=8, groups_per_step=8),
        lengths=LengthConfig(),
        evaluation=EvaluationConfig(),
    )


def engine_of(directory: Path, name: str) -> TransformersEngine:
    """The weights of a directory; `name` stands for them."""
    return TransformersEngine(directory, START, name, registry.COMPUTE_DTYPE)


def train(plan: Planner, out: Path, steps: int, learning_rate: float) -> list[Path]:
    """Directories of versions 0 to `steps`."""
    answers = {task.task_id: task.verification_info for task in plan.split.all()}
    settings = TrainerConfig(
        learning_rate=learning_rate, warmup_steps=0, optimizer_steps=4, max_grad_norm=1.0,
        weight_decay=0.0,
    )  # fmt: skip
    objective = ObjectiveConfig(advantage="std", clip_high=0.28, kl_coef=0.0)
    versions = [registry.materialise(START)]
    trainer = Trainer(versions[0], settings, objective, seed=1)
    for step in range(1, steps + 1):
        engine, rows = engine_of(versions[-1], "own"), []
        for number in range(3):
            job = plan.rollouts(step, number, step - 1, step - 1)
            rows += sample_groups(job, job.groups, step - 1, engine, KEY)
        ours = rewarded(rows, answers, plan.lengths, "std", plan.sampling.max_tokens)
        trainer.train_step(
            [
                Sample(
                    row["sample_id"], tuple(row["input_tokens"]), tuple(row["output_tokens"]),
                    np.asarray(row["output_logprobs"], np.float32), own["advantages"],
                )
                for row, own in zip(rows, ours, strict=True)
                if own["advantages"]
            ]
        )  # fmt: skip
        versions.append(out / f"step_{step}")
        trainer.save_weights(versions[-1])
    return versions


class Judge:
    """The check by the newest version, and the peer's decision on the same rows."""

    def __init__(self, newest: Path):
        self.engine = engine_of(newest, "claimed")
        self._calibration = registry.revision(CALIBRATED_BY)

    def refused(self, uploads: list[Rows]) -> dict[str, float]:
        """Shares of samples and uploads."""
        ours = peer = samples = lies = 0
        for rows in uploads:
            traces = [trace(row) | {"model_revision": "claimed"} for row in rows]
            verdicts = judge(traces, self.engine, CONFIG, calibration=self._calibration)
            hidden = self.engine.prefill([(t["prompt_ids"], t["output_ids"]) for t in traces])
            hard = [v for v in verdicts.values() if v.verdict == "rejected"]
            ours += len(hard)
            lies += any(not verdict.figures.get("soft") for verdict in hard)
            peer += sum(
                not judge_proofs(states, row["proofs"]).accepted
                for (states, _), row in zip(hidden, traces, strict=True)
            )
            samples += len(rows)
        return {
            "ours": ours / samples,
            "peer": peer / samples,
            "upload": lies / len(uploads),
            "samples": samples,
            "uploads": len(uploads),
        }


def cut(rows: Rows, key: SigningKey = KEY) -> Rows:
    """Thoughts that end in the middle, as if the limit had been there."""
    found = []
    for row in rows:
        keep = max(1, len(row["output_tokens"]) // 2)
        changes = {
            "output_tokens": row["output_tokens"][:keep],
            "output_logprobs": row["output_logprobs"][:keep],
            "proofs": row["proofs"][: 258 * math.ceil(keep / 32)],
            "completion": completion_text(
                TOKENIZER, row["input_tokens"], row["output_tokens"][:keep], []
            ),
            "finish_reason": "stop",
        }
        found.append(signed(row | changes, key))
    return found


def copied(rows: Rows, key: SigningKey = KEY) -> Rows:
    """One answer of each group for all its samples."""
    names = ("output_tokens", "output_logprobs", "proofs", "completion", "finish_reason")
    first = {row["group"]: row for row in reversed(rows)}
    return [signed(row | {n: first[row["group"]][n] for n in names}, key) for row in rows]


def other_seeds(job: RolloutJob, engine: TransformersEngine, version: int) -> Rows:
    """The best of several tries: answers of other seeds, given as those of the asked ones."""
    groups = [g.model_copy(update={"seeds": [s + 1 for s in g.seeds]}) for g in job.groups]
    asked = [seed for group in job.groups for seed in group.seeds]
    made = sample_groups(job, groups, version, engine, KEY)
    return [signed(row | {"seed": seed}, KEY) for row, seed in zip(made, asked, strict=True)]


def say(metric: str, found: dict[str, float]) -> None:
    """One line per figure."""
    common = {
        "bench": BENCH,
        "metric": metric,
        "peer_name": "TOPLOC limits of the paper (38/10/8)",
        "unit": "share of samples",
        "samples": found["samples"],
    }
    ratio = found["ours"] / found["peer"] if found["peer"] else None
    figures = {"ours": round(found["ours"], 4), "peer": round(found["peer"], 4)}
    print(json.dumps(common | figures | {"ratio": ratio and round(ratio, 2)}), flush=True)
    upload = {"metric": f"{metric}/upload", "ours": found["upload"], "unit": "share of uploads"}
    print(json.dumps(common | {"samples": found["uploads"]} | upload | {"peer": None}), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=2, help="uploads per attack, 64 samples each")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plan = planner(Path(directory) / "tasks")
        versions = train(plan, Path(directory), given.steps, given.learning_rate)
        check, newest = Judge(versions[-1]), given.steps
        jobs = [plan.rollouts(newest + 1, n, newest, newest) for n in range(given.jobs)]

        def answered(engine: TransformersEngine) -> list[Rows]:
            return [sample_groups(job, job.groups, newest, engine, KEY) for job in jobs]

        for distance in (d for d in DISTANCES if d <= newest):
            old = engine_of(versions[newest - distance], "claimed")
            say(f"detect/old_weights_{distance}", check.refused(answered(old)))
        honest = answered(check.engine)
        attacks: dict[str, Callable[[], list[Rows]]] = {
            "another_model": lambda: answered(engine_of(registry.materialise(OTHER), "claimed")),
            "truncated_thoughts": lambda: [cut(rows) for rows in honest],
            "copied_rollouts": lambda: [copied(rows) for rows in honest],
            "chosen_seeds": lambda: [other_seeds(job, check.engine, newest) for job in jobs],
        }
        for name, made in attacks.items():
            say(f"detect/{name}", check.refused(made()))


if __name__ == "__main__":
    main()
