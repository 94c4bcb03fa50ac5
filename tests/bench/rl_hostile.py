"""The learning curve with one third of the swarm hostile, against that of an honest swarm.

Both are the same rounds (checks, trainer, broadcast) over nodes in this process. Of three nodes one
lies with every upload, in turn: forged rewards, old weights (the start policy's), another model,
copied rollouts, cherry-picked prompts, truncated thoughts. A node that was caught is replaced by
another liar with a new key, so that a third stays hostile to the end.

    python -m tests.bench.rl_hostile [--steps 40] [--seeds 1 2]

Prints JSON lines: `solve_rate_hostile/<kind>` (ours: with liars, peer: without, at the last
version), and `refused/<lie>` (ours: share of its uploads that were refused).
"""

import argparse
import hashlib
import json
import queue
import secrets
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts import rollouts as contract
from data_contracts.text import table_from_rows
from infra.models import registry
from infra.pool import Job, JobResult, NodeStatus, Upload
from infra.pool.ledger import Verdict, entries
from infra.storage import RunLayout, Store
from infra.storage.parquet import parquet_bytes
from tasks.generate.config import SamplingConfig
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.check import RolloutCheck
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rollouts.job import Payload
from tasks.train.rollouts.policy import Policies
from tasks.train.rollouts.work import FILE, RolloutWork, sample_groups
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.driver import Events
from tasks.train.rounds.evaluation import Evaluation, EvaluationConfig
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.session import Rounds, opened
from tasks.train.rounds.tasks import TaskChoice, read_split
from tasks.train.rounds.trainer_process import TrainerResources
from tasks.train.trainer import TrainerConfig
from tests.bench.rl_tasks import write_split
from tests.bench.rl_trust import CALIBRATED_BY, OTHER, START, Rows, copied, cut, engine_of
from toploc.signing import SigningKey

BENCH = "rl_hostile"
NODES = 3
KINDS = ["spell_backward", "number_sorting"]

Lie = Callable[[Rows, Payload, SigningKey], Rows]


def with_weights(name: str) -> Lie:
    """All as asked, but the weights."""

    def made(rows: Rows, asked: Payload, key: SigningKey) -> Rows:
        engine = engine_of(registry.materialise(name), rows[0]["model_revision"])
        return sample_groups(asked.job, asked.job.groups, rows[0]["step"], engine, key)

    return made


def cherry_picked(rows: Rows, asked: Payload, key: SigningKey) -> Rows:
    """The first prompt answered in place of all others."""
    first = asked.job.groups[0]
    groups = [
        first.model_copy(update={"group": group.group, "seeds": group.seeds})
        for group in asked.job.groups
    ]
    engine = engine_of(registry.materialise(START), rows[0]["model_revision"])
    return sample_groups(asked.job, groups, rows[0]["step"], engine, key)


LIES: dict[str, Lie] = {
    "forged_rewards": lambda rows, asked, key: [
        row | {"rewards": 1.0, "task_rewards": 1.0} for row in rows
    ],
    "old_weights": with_weights(START),
    "another_model": with_weights(OTHER),
    "copied_rollouts": lambda rows, asked, key: copied(rows, key),
    "cherry_picked_prompts": cherry_picked,
    "truncated_thoughts": lambda rows, asked, key: cut(rows, key),
}


class Swarm:
    """NodePool of threads; the first node lies if `hostile`. Our own node checks."""

    def __init__(self, store: Store, hostile: bool):
        self._store, self._hostile = store, hostile
        self._jobs: queue.PriorityQueue[tuple[int, int, Job | None, Any]] = queue.PriorityQueue()
        self._checks: queue.SimpleQueue[tuple[Job, Any] | None] = queue.SimpleQueue()
        self._count, self._told = 0, 0
        self.keys = [SigningKey.generate() for _ in range(NODES)]
        self.lies: dict[str, list[str]] = {}
        """Lie -> keys of the nodes that told it, one per upload."""
        self._threads = [
            threading.Thread(target=self._node, args=(place,), daemon=True)
            for place in range(NODES)
        ]
        self._threads.append(threading.Thread(target=self._checker, daemon=True))

    def __enter__(self) -> "Swarm":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        for _ in range(NODES):
            self._jobs.put((-1, -1, None, None))
        self._checks.put(None)
        for thread in self._threads:
            thread.join()

    def nodes(self) -> list[NodeStatus]:
        """Nobody asks."""
        return []

    def submit(self, job: Job, check: Any = None) -> "Future[JobResult]":
        """Queue a job."""
        future: Future[JobResult] = Future()
        if job.kind == "check_rollouts":
            self._checks.put((job, future))
        else:
            self._count += 1
            self._jobs.put((job.priority, self._count, job, future))
        return future

    def distrust(self, node_id: str, reason: str, evidence: Any) -> None:
        """A liar that was caught comes back with another key."""
        for place, key in enumerate(self.keys):
            if key.node_id == node_id:
                self.keys[place] = SigningKey.generate()

    def _checker(self) -> None:
        check = RolloutCheck(Policies())
        while (asked := self._checks.get()) is not None:
            job, future = asked
            output = check(json.loads(json.dumps(job.payload)), lambda model: None)  # type: ignore[arg-type,return-value]
            future.set_result(JobResult(job.job_id, "ours", output, 1.0))

    def _node(self, place: int) -> None:
        policies = Policies()
        while True:
            _, _, job, future = self._jobs.get()
            if job is None:
                return
            if not future.set_running_or_notify_cancel():
                continue
            key = self.keys[place]
            payload = json.loads(json.dumps(job.payload))
            try:
                future.set_result(self._done(place, job, payload, key, policies))
            except Exception as error:
                future.set_exception(error)

    def _done(
        self, place: int, job: Job, payload: dict[str, Any], key: SigningKey, policies: Policies
    ) -> JobResult:
        with tempfile.TemporaryDirectory() as out:
            work = RolloutWork(key, policies)
            output = work(payload, lambda model: None, Path(out))  # type: ignore[arg-type,return-value]
            data = (Path(out) / FILE).read_bytes()
        if self._hostile and place == 0:
            name = list(LIES)[self._told % len(LIES)]
            self._told += 1
            rows = pq.read_table(pa.BufferReader(data)).to_pylist()
            lied = LIES[name](rows, Payload.model_validate(payload), key)
            data = parquet_bytes(table_from_rows(lied, contract.SCHEMA))
            self.lies.setdefault(name, []).append(key.node_id)
        path = f"uploads/{secrets.token_hex(8)}.parquet"
        self._store.write_bytes(path, data)
        file = Upload(path, hashlib.sha256(data).hexdigest(), len(data))
        return JobResult(job.job_id, key.node_id, output, 1.0, (file,))


def run(dataset: Path, seed: int, steps: int, hostile: bool) -> tuple[Evaluation, Swarm, Counter]:
    """The last evaluation, the swarm, and refused uploads by node."""
    root = tempfile.mkdtemp(prefix="rl-hostile-")
    store, layout = Store(root), RlLayout(RunLayout("bench"))
    found: list[Evaluation] = []
    rounds = Rounds(
        seed=seed,
        model=START,
        split=read_split(TaskChoice(dataset=str(dataset), held_out=200)),
        sampling=SamplingConfig(temperature=1.0, max_tokens=48),
        rounds=RoundsConfig(
            steps=steps, staleness=1, group_size=16, groups_per_job=8, groups_per_step=24, tries=50
        ),
        lengths=LengthConfig(),
        objective=ObjectiveConfig(advantage="std", clip_high=0.28, kl_coef=0.0),
        trainer=TrainerConfig(
            learning_rate=2e-4, optimizer_steps=4, warmup_steps=20, max_grad_norm=1.0,
            weight_decay=0.0,
        ),
        trust=TrustConfig(calibrated_by=CALIBRATED_BY),
        machine=TrainerResources(),
        evaluation=EvaluationConfig(every=steps),
    )  # fmt: skip
    with (
        Swarm(store, hostile) as swarm,
        opened(rounds, store, layout, swarm, Events(evaluated=found.append)) as driver,
    ):
        driver.run()
    records = [entry.record for entry in entries(store)]
    refused = Counter(
        record.nodes[0] for record in records if isinstance(record, Verdict) and not record.accepted
    )
    return found[-1], swarm, refused


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    dataset = write_split(Path(tempfile.mkdtemp(prefix="rl-hostile-tasks-")), KINDS, 512)
    told: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    for seed in given.seeds:
        honest, _, wronged = run(dataset, seed, given.steps, hostile=False)
        hostile, swarm, refused = run(dataset, seed, given.steps, hostile=True)
        for kind, rates in hostile.kinds.items():
            ours, peer = rates.sampled, honest.kinds[kind].sampled
            print(json.dumps({
                "bench": BENCH, "metric": f"solve_rate_hostile/{kind}", "seed": seed,
                "ours": round(ours.mean, 4), "peer": round(peer.mean, 4),
                "peer_name": "the same swarm, honest", "ratio": round(ours.mean / peer.mean, 3),
                "unit": "share", "interval": [ours.low, ours.high],
                "peer_interval": [peer.low, peer.high], "honest_refused": sum(wronged.values()),
            }), flush=True)  # fmt: skip
        for name, keys in swarm.lies.items():
            told[name] += len(keys)
            caught[name] += sum(min(1, refused[key]) for key in keys)
    for name, count in told.items():
        print(json.dumps({
            "bench": BENCH, "metric": f"refused/{name}", "ours": round(caught[name] / count, 4),
            "peer": None, "peer_name": "", "ratio": None, "unit": "share of uploads",
            "uploads": count,
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
