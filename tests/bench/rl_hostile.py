"""The learning curve with one third of the swarm hostile, against that of an honest swarm.

Both are rounds by the profile rl-local (objective, trainer, batches, staleness; every upload is
checked) over nodes in this process, on tasks as the profile rl-tasks has them. Of three nodes one
lies with every upload, in turn: forged rewards, old weights (the start policy's), another model,
copied rollouts, cherry-picked prompts, truncated thoughts. A node that was caught is replaced by
another liar with a new key, so that a third stays hostile to the end.

    python -m tests.bench.rl_hostile [--steps 20] [--seeds 1] [--held-out 200]

Prints JSON lines: `solve_rate_hostile/<kind>` (ours: with liars, peer: without; mean of the last
three evaluations, 95 % intervals over tasks, and whether the difference is within noise), `seconds`
of the two runs, and `refused/<lie>` (ours: share of its uploads that were refused, of those that
have a verdict; for old weights also by their distance in versions).
"""

import argparse
import hashlib
import json
import queue
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts import rollouts as contract
from data_contracts.text import table_from_rows
from infra.models import registry
from infra.pool import Job, JobResult, NodeStatus, Upload
from infra.pool.protocol import Check
from infra.storage import RunLayout, Store, list_committed
from infra.storage.parquet import parquet_bytes
from tasks.train.rollouts.check import RolloutCheck
from tasks.train.rollouts.errors import RolloutsRefused
from tasks.train.rollouts.job import Payload
from tasks.train.rollouts.policy import Policies
from tasks.train.rollouts.standing import EXCLUDED
from tasks.train.rollouts.work import FILE, RolloutWork, sample_groups
from tasks.train.rounds.driver import Events
from tasks.train.rounds.estimates import Estimate
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.session import opened
from tests.bench.rl_rounds import compared, curve, last_rates, rounds_by
from tests.bench.rl_tasks import write_split
from tests.bench.rl_trust import OTHER, START, Rows, copied, cut, engine_of
from toploc.signing import SigningKey

BENCH = "rl_hostile"
NODES = 3
KINDS = ["spell_backward", "number_sorting"]
EVALUATIONS = 4
"""Of trained versions, evenly over the steps."""

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


@dataclass(frozen=True)
class Told:
    """A lie that was uploaded."""

    lie: str
    sha256: str
    version: int
    """Policy version that the upload names."""


class Swarm:
    """NodePool of threads; the first node lies if `hostile`. Our own node checks.

    Uploads are looked at one after the other on another thread, and the nodes go on meanwhile.
    """

    def __init__(self, store: Store, hostile: bool):
        self._store, self._hostile = store, hostile
        self._jobs: queue.PriorityQueue[tuple[int, int, Job | None, Any]] = queue.PriorityQueue()
        self._checks: queue.SimpleQueue[tuple[Job, Any] | None] = queue.SimpleQueue()
        # transformers cannot load a model while another thread uses one.
        self._engines = threading.Lock()
        self._count, self._told = 0, 0
        self.keys = [SigningKey.generate() for _ in range(NODES)]
        self.lies: list[Told] = []
        self.refused: set[str] = set()
        """SHA-256 of the uploads that were read and refused."""
        self._reader = ThreadPoolExecutor(1, "check")
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
        for thread in self._threads[:NODES]:
            thread.join()
        self._reader.shutdown(cancel_futures=True)
        self._checks.put(None)
        self._threads[-1].join()

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
            self._jobs.put((job.priority, self._count, job, (future, check)))
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
            try:
                with self._engines:
                    output = check(json.loads(json.dumps(job.payload)), lambda model: None)  # type: ignore[arg-type,return-value]
                future.set_result(JobResult(job.job_id, "ours", output, 1.0))
            except Exception as error:
                future.set_exception(error)

    def _node(self, place: int) -> None:
        policies = Policies()
        while True:
            _, _, job, asked = self._jobs.get()
            if job is None:
                return
            future, check = asked
            if not future.set_running_or_notify_cancel():
                continue
            key = self.keys[place]
            payload = json.loads(json.dumps(job.payload))
            try:
                with self._engines:
                    result = self._done(place, job, payload, key, policies)
            except Exception as error:
                future.set_exception(error)
            else:
                self._reader.submit(self._looked_at, result, future, check)

    def _looked_at(self, result: JobResult, future: "Future[JobResult]", check: Check) -> None:
        try:
            check(result)
        except Exception as error:
            if isinstance(error, RolloutsRefused) and error.reasons != [EXCLUDED]:
                self.refused.add(result.files[0].sha256)
            future.set_exception(error)
        else:
            future.set_result(result)

    def _done(
        self, place: int, job: Job, payload: dict[str, Any], key: SigningKey, policies: Policies
    ) -> JobResult:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as out:
            work = RolloutWork(key, policies)
            output = work(payload, lambda model: None, Path(out))  # type: ignore[arg-type,return-value]
            data = (Path(out) / FILE).read_bytes()
        if self._hostile and place == 0:
            data = self._lied(data, Payload.model_validate(payload), key)
        path = f"uploads/{secrets.token_hex(8)}.parquet"
        self._store.write_bytes(path, data)
        file = Upload(path, hashlib.sha256(data).hexdigest(), len(data))
        return JobResult(job.job_id, key.node_id, output, time.monotonic() - began, (file,))

    def _lied(self, data: bytes, asked: Payload, key: SigningKey) -> bytes:
        rows = pq.read_table(pa.BufferReader(data)).to_pylist()
        version = rows[0]["step"]
        # Of version 0, and of groups of one sample, these would be honest.
        honest = {"old_weights"} if version == 0 else set()
        if all(len(group.seeds) == 1 for group in asked.job.groups):
            honest.add("copied_rollouts")
        lies = [name for name in LIES if name not in honest]
        name = lies[self._told % len(lies)]
        self._told += 1
        lied = LIES[name](rows, asked, key)
        data = parquet_bytes(table_from_rows(lied, contract.SCHEMA))
        self.lies.append(Told(name, hashlib.sha256(data).hexdigest(), version))
        return data


@dataclass
class Result:
    """What a run came to."""

    rates: dict[str, Estimate]
    curves: dict[str, list[tuple[int, float]]]
    seconds: float
    lies: list[Told]
    refused: set[str]
    """SHA-256 of uploads."""
    accepted: set[str]


def run(dataset: Path, seed: int, steps: int, held_out: int, hostile: bool) -> Result:
    """The rounds with a swarm."""
    root = tempfile.mkdtemp(prefix="rl-hostile-")
    store, layout = Store(root), RlLayout(RunLayout("bench"))
    settings = {
        "seed": seed,
        "tasks.held_out": held_out,
        "rounds.steps": steps,
        # A job may come to the liar again and again.
        "rounds.tries": 50,
        "trust.check.audit.floor": 1.0,
        "evaluation.every": max(1, steps // EVALUATIONS),
    }
    rounds = rounds_by("rl-local", dataset, settings)
    began = time.monotonic()
    with Swarm(store, hostile) as swarm, opened(rounds, store, layout, swarm, Events()) as driver:
        driver.run()
    seconds = time.monotonic() - began
    committed = list_committed(store, layout.root)
    accepted = {sha256 for file in committed for sha256 in file.info.get("files", {}).values()}
    rates = last_rates(store, layout, rounds)
    curves = {kind: curve(store, layout, kind) for kind in rates}
    return Result(rates, curves, seconds, swarm.lies, swarm.refused, accepted)


def refusals(results: list[Result]) -> dict[str, Counter[bool]]:
    """Lie -> uploads by whether they were refused; `old_weights_<d>` beside `old_weights`.

    An upload without a verdict is left out: its job was done, or its node out, before it was read.
    """
    found: dict[str, Counter[bool]] = {name: Counter() for name in LIES}
    for result in results:
        for told in result.lies:
            if told.sha256 not in result.refused | result.accepted:
                continue
            found[told.lie][told.sha256 in result.refused] += 1
            if told.lie == "old_weights":
                distance = found.setdefault(f"old_weights_{told.version}", Counter())
                distance[told.sha256 in result.refused] += 1
    return found


def say(metric: str, ours: float | None, unit: str, **more: Any) -> None:
    """One line."""
    line = {"bench": BENCH, "metric": metric, "ours": ours, "peer": None, "peer_name": "",
            "ratio": None, "unit": unit}  # fmt: skip
    print(json.dumps(line | more), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--held-out", type=int, default=200, help="tasks of each kind")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="rl-hostile-tasks-"))
    dataset = write_split(directory, KINDS, given.held_out + 500, "rl-tasks")
    swarms: list[Result] = []
    peer = {"peer_name": "the same swarm, honest"}
    for seed in given.seeds:
        honest = run(dataset, seed, given.steps, given.held_out, hostile=False)
        hostile = run(dataset, seed, given.steps, given.held_out, hostile=True)
        swarms.append(hostile)
        for kind, rate in hostile.rates.items():
            say(
                f"solve_rate_hostile/{kind}", **compared(rate, honest.rates[kind]), **peer,
                curve=hostile.curves[kind], peer_curve=honest.curves[kind], seed=seed,
                honest_refused=len(honest.refused),
            )  # fmt: skip
        ratio = round(honest.seconds / hostile.seconds, 3)
        say("seconds", round(hostile.seconds, 1), "s", **peer, peer=round(honest.seconds, 1),
            ratio=ratio, seed=seed)  # fmt: skip
    for name, counts in refusals(swarms).items():
        uploads = counts.total()
        share = round(counts[True] / uploads, 4) if uploads else None
        say(f"refused/{name}", share, "share of uploads", uploads=uploads)


if __name__ == "__main__":
    main()
