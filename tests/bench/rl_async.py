"""Asynchronous rounds against synchronous ones, at equal samples with long-tailed lengths.

Measured: the same rounds (nodes, checks, trainer, broadcast; without Prefect) on this machine's
cores, in turn. Synchronous: staleness 0 with one and with two engine processes, each with a trainer
of one and of two threads; the best of them is the peer. Asynchronous: staleness 2, two engine
processes and a trainer of one thread. A side's time is that of one step between two selections
late enough that start-up is over, the median over rounds.

Simulated: the same on separate devices (`rl_async_simulation`), as many inference devices as keep
pace with the trainer, fed with the times of jobs and steps of the measured synchronous rounds.

    python -m tests.bench.rl_async [--rounds 3] [--steps 14]

Prints JSON lines: `async_vs_sync` (ratio: synchronous / asynchronous time of a step), then
`async_vs_sync/separate_devices/staleness_<k>`.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from infra.storage import RunLayout, Store, list_committed
from tasks.generate.config import SamplingConfig
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.driver import Events
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.session import Rounds, opened
from tasks.train.rounds.tasks import TaskChoice, read_split
from tasks.train.rounds.trainer_process import TrainerResources
from tasks.train.trainer import TrainerConfig
from tests.bench.rl_async_simulation import Measured, balanced_devices, simulate
from tests.bench.rl_tasks import write_split

BENCH = "rl_async"
FIRST = 4
"""Step from which on time is measured."""
JOBS = 4
SIMULATED_STEPS = 200
STALENESS = (1, 2, 4)


@dataclass(frozen=True)
class Side:
    name: str
    staleness: int
    nodes: int
    threads: int


SYNCHRONOUS = [
    Side(f"synchronous, {nodes} nodes, {threads} threads", 0, nodes, threads)
    for nodes in (1, 2)
    for threads in (1, 2)
]
ASYNCHRONOUS = Side("asynchronous", 2, 2, 1)


@dataclass
class Times:
    step: list[float] = field(default_factory=list)
    job: list[float] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


def rounds(dataset: Path, side: Side, steps: int) -> Rounds:
    return Rounds(
        seed=11,
        model="tracemill/nano-rl",
        split=read_split(TaskChoice(dataset=str(dataset), held_out=8)),
        # Hot enough that a part of the answers goes on to the limit.
        sampling=SamplingConfig(temperature=1.15, max_tokens=256),
        rounds=RoundsConfig(
            steps=steps, staleness=side.staleness, group_size=16, groups_per_job=8,
            groups_per_step=8 * JOBS,
        ),
        # Every group has a spread of rewards, so every side makes and trains the same number.
        lengths=LengthConfig(reward="exact", targets=(16, 32, 48), alpha=0.001),
        objective=ObjectiveConfig(kl_coef=0.0),
        trainer=TrainerConfig(learning_rate=1e-6, optimizer_steps=2, warmup_steps=0),
        trust=TrustConfig(),
        machine=TrainerResources(threads=side.threads),
        evaluation=EvaluationConfig(every=10_000, tasks=1),
    )  # fmt: skip


def measure(dataset: Path, side: Side, steps: int, times: Times) -> None:
    chosen: list[float] = []
    events = Events(stepped=lambda made: chosen.append(made["seconds"]))
    root = tempfile.mkdtemp(prefix="rl-async-")
    store, layout = Store(root), RlLayout(RunLayout("bench"))
    with (
        local_pool(ProvisionConfig(nodes=side.nodes), store, f"{layout.root}/pool") as pool,
        opened(rounds(dataset, side, steps), store, layout, pool, events) as driver,
    ):
        driver.run()
    times.step.append((chosen[-1] - chosen[FIRST - 1]) / (steps - FIRST))
    files = list_committed(store, f"{layout.root}/rollouts")
    times.job += [file.info["seconds"] for file in files if file.info["step"] >= FIRST]
    metrics = store.local_path(f"{layout.trainer}/metrics.parquet")
    times.train += pq.read_table(metrics)["time/step"].to_pylist()[FIRST:]
    for file in files:
        table = pq.read_table(store.local_path(file.file), columns=["output_tokens"])
        times.lengths += [len(ids) for ids in table["output_tokens"].to_pylist()]


def print_line(metric: str, ours: float, peer: float, peer_name: str, **more: Any) -> None:
    figures = {"bench": BENCH, "metric": metric, "ours": round(ours, 3), "peer": round(peer, 3),
               "peer_name": peer_name, "ratio": round(peer / ours, 3),
               "unit": "s/step"}  # fmt: skip
    print(json.dumps(figures | more), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    given = parser.parse_args()
    dataset = write_split(Path(tempfile.mkdtemp()) / "tasks", ["spell_backward"], 600)
    sides = [*SYNCHRONOUS, ASYNCHRONOUS]
    times = {side.name: Times() for side in sides}
    for _ in range(given.rounds):
        for side in sides:
            measure(dataset, side, given.steps, times[side.name])
    median = {name: statistics.median(found.step) for name, found in times.items()}
    best = min((side.name for side in SYNCHRONOUS), key=median.__getitem__)
    lengths = sorted(times[best].lengths)
    print_line(
        "async_vs_sync", median[ASYNCHRONOUS.name], median[best], best,
        tokens_median=lengths[len(lengths) // 2], tokens_p99=lengths[len(lengths) * 99 // 100],
        all_sides={name: round(value, 3) for name, value in median.items()},
    )  # fmt: skip
    # One node and one thread: times as they are on a device of its own.
    alone = times[SYNCHRONOUS[0].name]
    measured = Measured(job=alone.job, train=alone.train, publish=0.2)
    devices = balanced_devices(measured, JOBS)
    base = simulate(measured, SIMULATED_STEPS, JOBS, devices, 0, seed=1)
    for staleness in STALENESS:
        found = simulate(measured, SIMULATED_STEPS, JOBS, devices, staleness, seed=1)
        print_line(
            f"async_vs_sync/separate_devices/staleness_{staleness}",
            found.seconds / SIMULATED_STEPS,
            base.seconds / SIMULATED_STEPS,
            "synchronous on the same devices",
            inference_devices=devices,
            trainer_idle=round(found.trainer_idle, 3),
            inference_idle=round(found.inference_idle, 3),
        )


if __name__ == "__main__":
    main()
