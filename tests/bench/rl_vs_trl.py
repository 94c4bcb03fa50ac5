"""Wall time to a held-out solve rate: our rounds against TRL's GRPOTrainer, on two cores.

Both sides start from the same nano policy and train on the same tasks of the same published split,
with the same group size, samples per optimizer step, learning rate and schedule, optimizer, clips
and advantages, sampled at temperature 1, rewarded by the same verifiers, measured on the same
held-out tasks by the same engine. TRL has both cores (the better of 1 and 2 threads is taken where
both are asked for); we have our profile: a node, a trainer and the flow as processes, asynchronous.

Both clocks start when all is imported and loaded, and stand still while a policy is measured:
ours when a node has answered its first job (of two, each one held-out task; what it generates next
is for the first step), TRL's with `train()`. Ours has generation, the checks of all uploads,
training and the broadcast in it; its versions are copied as they appear and measured when it has
ended, by the same code as TRL's. The time to the rate is interpolated between the last measured
version below it and the first at or above it.

    python -m tests.bench.rl_vs_trl [--profile rl-local] [--seeds 1] [--target 0.6]
        [--steps 20] [--every 5] [--limit 900] [--threads 2] [--set key=value ...]

Metric `time_to_solve_rate`: medians over the seeds, in seconds; the curves go to stderr. A side
that did not reach the target counts with the time it had. Where that is TRL, `bound` is "lower":
`peer` and `ratio` are at least what is printed; where it is ours, "upper" (at most); where it is
both, there is no ratio.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.profiles import load_config
from flows.rl_config import RlConfig
from infra.models.registry import materialise
from infra.storage import RunLayout, Store
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.tasks import RlTask, TaskSplit, read_split
from tasks.train.trainer import weights_path
from tests.bench.peers import peer_python
from tests.bench.trl_training import Measuring

PROGRAM = Path(__file__).with_name("trl_training.py")
POLL_SECONDS = 0.05
SCALING = {"std": "group", "batch_std": "batch", "none": "none"}
LOSS = {"token_mean": "dapo", "sequence_mean": "grpo", "sequence_sum": "luspo"}

Curve = list[tuple[float, float]]
"""Seconds and the mean over the kinds of the held-out solve rate."""


class SideFailed(RuntimeError):
    """A side ended without any figures."""


@dataclass
class Side:
    """A side's seconds to the target, one per seed."""

    seconds: list[float] = field(default_factory=list)
    reached: bool = True
    """Each time; else some seconds are those that it had."""

    def add(self, target: float, curve: Curve) -> None:
        """What one curve says."""
        before = (0.0, 0.0)
        for seconds, rate in curve:
            if rate >= target:
                share = (target - before[1]) / (rate - before[1])
                self.seconds.append(before[0] + share * (seconds - before[0]))
                return
            before = seconds, rate
        self.seconds.append(before[0])
        self.reached = False

    @property
    def median(self) -> float:
        """Of the seeds."""
        return statistics.median(self.seconds)


def our_curve(
    config: RlConfig, profile: str, settings: list[str], run_id: str, every: int, limit: float
) -> Curve:
    """Run `tracemill rl` and measure its versions."""
    command = [sys.executable, "-m", "flows.cli", "rl", "--profile", profile, "--run-id", run_id]
    for setting in settings:
        command += ["--set", setting]
    store, layout = Store(config.storage.root), RlLayout(RunLayout(run_id))
    run_dir = store.local_path(f"{layout.trainer}/x")
    assert run_dir is not None
    uploads = run_dir.parent.parent / "pool" / "uploads"
    began = 0.0
    found = [(0.0, materialise(config.model))]
    with tempfile.TemporaryDirectory() as copies, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None and len(found) <= config.rounds.steps // every:
                time.sleep(POLL_SECONDS)
                now = time.monotonic()
                if not began:
                    answered = store.exists(layout.evaluation(0)) or any(
                        uploads.glob("*/*.parquet")
                    )
                    began = now if answered else 0.0
                elif now - began > limit:
                    break
                version = every * len(found)
                weights = weights_path(run_dir.parent, version)
                if weights.is_dir():
                    copy = Path(copies, str(version))
                    shutil.copytree(weights, copy)
                    found.append((now - began, copy))
        finally:
            process.kill()
            process.wait()
        if len(found) == 1:
            log.seek(0)
            raise SideFailed(f"no version of {run_id}: {log.read()[-2000:]!r}")
        split = read_split(config.tasks.model_copy(update={"dataset": dataset_of(store, layout)}))
        measuring = Measuring(measured(config, split))
        return [(seconds, mean(measuring.rates(directory))) for seconds, directory in found]


def dataset_of(store: Store, layout: RlLayout) -> str:
    """Where the tasks of a run came from."""
    return str(store.read_json(f"{layout.root}/dataset.json")["dataset"])


def measured(config: RlConfig, split: TaskSplit) -> dict[str, Any]:
    """What both sides measure by."""
    return {
        "model": str(materialise(config.model)),
        "held_out": [plain(task) for task in split.held_out],
        "grpo": {"max_completion_length": config.sampling.max_tokens},
    }


def mean(rates: dict[str, float]) -> float:
    """Over the kinds."""
    return statistics.mean(rates.values())


def trl_curve(
    config: RlConfig, dataset: str, every: int, target: float, limit: float, threads: int
) -> Curve:
    """Run TRL in its environment until the target is reached."""
    split = read_split(config.tasks.model_copy(update={"dataset": dataset}))
    rounds, trainer, objective = config.rounds, config.trainer, config.objective
    samples = rounds.group_size * rounds.groups_per_step // trainer.optimizer_steps
    common = measured(config, split)
    settings = common | {
        "threads": threads,
        "train": [plain(task) for task in split.train],
        "measure_every": every * trainer.optimizer_steps,
        "target": target,
        "limit_seconds": limit,
        "grpo": common["grpo"]
        | {
            "seed": config.seed,
            "per_device_train_batch_size": samples,
            "gradient_accumulation_steps": 1,
            "steps_per_generation": trainer.optimizer_steps,
            "num_generations": rounds.group_size,
            "temperature": config.sampling.temperature,
            "learning_rate": trainer.learning_rate,
            "lr_scheduler_type": trainer.schedule,
            "warmup_steps": trainer.warmup_steps,
            "max_steps": trainer.total_steps or rounds.steps * trainer.optimizer_steps,
            "adam_beta1": trainer.betas[0],
            "adam_beta2": trainer.betas[1],
            "adam_epsilon": trainer.epsilon,
            "weight_decay": trainer.weight_decay,
            "max_grad_norm": trainer.max_grad_norm,
            "epsilon": objective.clip_low,
            "epsilon_high": objective.clip_high,
            "delta": objective.delta,
            "beta": objective.kl_coef,
            "scale_rewards": SCALING[objective.advantage],
            "loss_type": LOSS[objective.aggregation],
        },
    }
    with tempfile.TemporaryDirectory() as name:
        source, sink = Path(name, "settings.json"), Path(name, "evaluations.jsonl")
        source.write_text(json.dumps(settings))
        done = subprocess.run(
            # -I: neither this folder nor PYTHONPATH may put our package in its place.
            [str(peer_python("trl")), "-I", str(PROGRAM), str(source), str(sink)],
            env=os.environ
            | {"OMP_NUM_THREADS": str(threads), "TRACEMILL_ENGINE_THREADS": str(threads)}
            | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise SideFailed(f"TRL failed: {done.stdout[-3000:]}")
        found = [json.loads(line) for line in sink.read_text().splitlines()]
    return [(each["seconds"], mean(each["rates"])) for each in found]


def plain(task: RlTask) -> dict[str, Any]:
    """A task as JSON."""
    return {
        "prompt": [dict(message) for message in task.prompt],
        "kind": task.kind,
        "task_type": task.task_type,
        "verification_info": task.verification_info,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="rl-local")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--target", type=float, default=0.6)
    parser.add_argument("--steps", type=int, default=20, help="our rollout steps")
    parser.add_argument("--every", type=int, default=5, help="rollout steps per measurement")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a side has")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="of TRL")
    parser.add_argument("--set", dest="sets", nargs="*", default=[], help="of the profile")
    arguments = parser.parse_args()
    peer_python("trl")
    ours, theirs = Side(), {threads: Side() for threads in arguments.threads}
    with tempfile.TemporaryDirectory() as root:
        for seed in arguments.seeds:
            settings = [f"storage.root={root}", f"seed={seed}", *arguments.sets]
            settings += [f"rounds.steps={arguments.steps}"]
            settings += ["evaluation.every=1000000", "evaluation.tasks=1"]
            config = load_config(RlConfig, arguments.profile, settings)
            run_id, every = f"ours-{seed}", arguments.every
            curve = our_curve(config, arguments.profile, settings, run_id, every, arguments.limit)
            show(f"ours, seed {seed}", curve)
            ours.add(arguments.target, curve)
            dataset = dataset_of(Store(root), RlLayout(RunLayout(run_id)))
            for threads, found in theirs.items():
                rest = every, arguments.target, arguments.limit, threads
                curve = trl_curve(config, dataset, *rest)
                show(f"TRL with {threads} threads, seed {seed}", curve)
                found.add(arguments.target, curve)
    print(json.dumps(figures(ours, list(theirs.values()), arguments.target)), flush=True)


def figures(ours: Side, theirs: list[Side], target: float) -> dict[str, Any]:
    """The JSON line."""
    # Of TRL's sides the fastest that got there; else each had at least the shortest of their times.
    peer = min(theirs, key=lambda side: (not side.reached, side.median))
    bound = {(True, True): False, (True, False): "lower", (False, True): "upper"}
    return {
        "bench": "rl_vs_trl",
        "metric": "time_to_solve_rate",
        "ours": round(ours.median, 1),
        "peer": round(peer.median, 1),
        "peer_name": "TRL 1.16.0 GRPOTrainer",
        "ratio": round(peer.median / ours.median, 3) if ours.reached or peer.reached else None,
        "unit": "s",
        "target": target,
        "bound": bound.get((ours.reached, peer.reached), "both"),
    }


def show(who: str, curve: Curve) -> None:
    points = ", ".join(f"{seconds:.0f} s {rate:.3f}" for seconds, rate in curve)
    print(f"{who}: {points}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
