"""Asynchronous rounds against synchronous ones, at equal samples with long-tailed lengths.

Measured: the same rounds (nodes, checks, trainer, broadcast; without Prefect) on this machine's
cores, in turn. Synchronous: staleness 0 with one and with two engine processes, each with a trainer
of two threads, as nobody else works while it trains; the better of them is the peer. Asynchronous:
staleness 2, two engine processes and a trainer of one thread. A side's time is that between two
selections, the first late enough that start-up is over, for as many jobs as a step has of those
that were accepted in it (asynchronous rounds have some ahead when it begins); the median over
rounds.

Simulated: the same on separate devices (`rl_async_simulation`), as many inference devices as keep
pace with the trainer, fed with the times of jobs, checks and steps of the measured synchronous
rounds of one engine process, and with the time from a trained version's files to a node that has
swapped its weights for them (origin, HTTP, verification, load).

    python -m tests.bench.rl_async [--rounds 3] [--steps 12]

Prints JSON lines: `async_vs_sync` (ratio: synchronous / asynchronous time of a step), then
`async_vs_sync/separate_devices/staleness_<k>`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

from infra.broadcast import Origin
from infra.broadcast.service import serving
from infra.models.registry import materialise
from infra.pool import Job, JobResult, RemotePool
from infra.pool.protocol import Check
from infra.storage import RunLayout, Store, list_committed, read_table
from tasks.generate.config import SamplingConfig
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rollouts.job import Broadcast
from tasks.train.rollouts.policy import Policy
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.driver import Events
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.session import Rounds, opened
from tasks.train.rounds.tasks import TaskChoice, read_split
from tasks.train.rounds.trainer_process import TrainerResources
from tasks.train.trainer import TrainerConfig, weights_path
from tests.bench.rl_async_simulation import Measured, balanced_devices, simulate
from tests.bench.rl_tasks import write_split
from toploc.signing import SigningKey

BENCH = "rl_async"
FIRST = 3
"""Step from which on time is measured."""
JOBS = 2
PUBLICATIONS = 5
MODEL = "tracemill/nano-rl"
SIMULATED_STEPS = 200
STALENESS = (1, 2, 4)


@dataclass(frozen=True)
class Side:
    name: str
    staleness: int
    nodes: int
    threads: int


SYNCHRONOUS = [Side(f"synchronous, {nodes} nodes", 0, nodes, 2) for nodes in (1, 2)]
ASYNCHRONOUS = Side("asynchronous", 2, 2, 1)


@dataclass
class Times:
    step: list[float] = field(default_factory=list)
    job: list[float] = field(default_factory=list)
    check: list[float] = field(default_factory=list)
    publish: list[float] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


class Watched:
    """A pool, and the seconds that its nodes took for each kind of job."""

    def __init__(self, pool: RemotePool) -> None:
        self._pool = pool
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def submit(self, job: Job, check: Check | None = None) -> "Future[JobResult]":
        """Queue a job."""
        future = self._pool.submit(job, check)
        future.add_done_callback(lambda done: self._ended(job.kind, done))
        return future

    def _ended(self, kind: str, done: "Future[JobResult]") -> None:
        if not done.cancelled() and done.exception() is None:
            self.seconds[kind].append(done.result().seconds)


def rounds(dataset: Path, side: Side, steps: int) -> Rounds:
    return Rounds(
        seed=11,
        model=MODEL,
        split=read_split(TaskChoice(dataset=str(dataset), held_out=8)),
        # So hot that answers have a long tail: a median of some 40 tokens, one in ten four times as
        # long, one in a hundred up to the limit.
        sampling=SamplingConfig(temperature=2.6, max_tokens=512),
        rounds=RoundsConfig(
            steps=steps, staleness=side.staleness, group_size=16, groups_per_job=4,
            groups_per_step=4 * JOBS,
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
    accepted: list[int] = []
    store, layout = Store(tempfile.mkdtemp(prefix="rl-async-")), RlLayout(RunLayout("bench"))
    with local_pool(ProvisionConfig(nodes=side.nodes), store, f"{layout.root}/pool") as pool:
        watched = Watched(pool)

        def stepped(made: dict[str, Any]) -> None:
            chosen.append(made["seconds"])
            accepted.append(made["jobs"]["accepted"])
            if len(chosen) == FIRST:
                watched.seconds.clear()  # start-up

        events = Events(stepped=stepped)
        with opened(rounds(dataset, side, steps), store, layout, watched, events) as driver:
            driver.run()
    times.step.append((chosen[-1] - chosen[FIRST - 1]) * JOBS / sum(accepted[FIRST:]))
    times.job += watched.seconds["rollouts"]
    times.check += watched.seconds["check_rollouts"]
    run_dir = store.local_path(f"{layout.trainer}/metrics.parquet").parent
    times.train += pq.read_table(run_dir / "metrics.parquet")["time/step"].to_pylist()[FIRST:]
    times.publish += publish_seconds(weights_path(run_dir, steps))
    for file in list_committed(store, f"{layout.root}/rollouts"):
        ids = read_table(store, file.path, columns=["output_tokens"])["output_tokens"]
        times.lengths += [len(each) for each in ids.to_pylist()]


def publish_seconds(weights: Path) -> list[float]:
    """From the files of a version to a node's engine that has its weights, some times."""
    found = []
    key = SigningKey.generate()
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        origin = Origin(Path(name, "origin"), "bench", key, keep=PUBLICATIONS + 1)
        origin.publish(0, materialise(MODEL))
        with serving({"bench": origin.root}) as url:
            broadcast = Broadcast(url=url, stream="bench", publisher=key.node_id)
            policy = Policy(MODEL, broadcast, Path(name, "node"))
            policy.use(0)
            for version in range(1, PUBLICATIONS + 1):
                began = time.monotonic()
                origin.publish(version, weights)
                policy.use(version)
                found.append(time.monotonic() - began)
            policy.close()
    return found


def print_line(metric: str, ours: float, peer: float, peer_name: str, **more: Any) -> None:
    figures = {"bench": BENCH, "metric": metric, "ours": round(ours, 3), "peer": round(peer, 3),
               "peer_name": peer_name, "ratio": round(peer / ours, 3),
               "unit": "s/step"}  # fmt: skip
    print(json.dumps(figures | more), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
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
        tokens={f"p{p}": lengths[len(lengths) * p // 100] for p in (50, 90, 99)},
        all_sides={name: round(value, 3) for name, value in median.items()},
    )  # fmt: skip
    # One node: nobody else worked while its jobs, checks and steps were timed.
    alone = times[SYNCHRONOUS[0].name]
    publish = statistics.median(alone.publish)
    measured = Measured(job=alone.job, check=alone.check, train=alone.train, publish=publish)
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
            seconds={
                "job": round(statistics.median(alone.job), 3),
                "check": round(statistics.median(alone.check), 3),
                "train": round(statistics.median(alone.train), 3),
                "publish": round(publish, 3),
            },
            trainer_idle=round(found.trainer_idle, 3),
            inference_idle=round(found.inference_idle, 3),
            checker_idle=round(found.checker_idle, 3),
        )


if __name__ == "__main__":
    main()
