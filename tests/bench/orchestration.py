"""What orchestration costs: the run against a plain loop over the same stage functions.

Both sides take the same collected tasks through the same shards with the same number of processes:
generate, ingest, validate, verify, annotate, teacher's part, publish, all committed. The run has
Prefect, the node pool and Dask around the functions; the plain loop has worker processes that take
the next shard. Starting servers and processes, imports and model loading are left out on both;
the two sides run in turn and the medians are compared.

    python -m tests.bench.orchestration [--rounds 3] [--profile local] [--set key=value ...]

Prints one JSON line: metric `run_vs_plain_loop`, ratio = plain / run (above 1: the run is faster).
"""

import argparse
import hashlib
import json
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

import flows  # noqa: F401  (settings that Prefect must find at its import)
from flows.config import RunConfig
from flows.profiles import load_profile
from flows.publish import publish_results
from flows.run import answer_tasks
from flows.runs import Run, code_version, find_run, open_run
from flows.session import Session, session
from infra.inference import load_engine
from infra.pool import Check, Job, JobResult, Upload
from infra.reaper import watch_this_process
from infra.storage import read_manifest, read_table
from tasks.annotate.select import select_for_teacher
from tasks.annotate.stage import annotate
from tasks.collect.collect import collect_tasks
from tasks.generate.plan import Shard, plan_tasks
from tasks.generate.stage import Generator, commit_plan, read_plan
from tasks.generate.upload import SCHEMA as UPLOAD_SCHEMA
from tasks.generate.upload import Reader, read_upload
from tasks.provision.worker import answer, works
from tasks.publish.stage import publish
from tasks.validate.stage import Validator
from tasks.verify.score import score_batch
from tasks.verify.stage import Scorer
from toploc.signing import SigningKey

WARM_ROW = {
    "task_type": "verifiable_math",
    "completion": "\\boxed{\\frac{1}{2}}",
    "verification_info": '{"ground_truth": "0.5"}',
}
WARM_CODE = {
    "task_type": "prime_rl_code",
    "completion": "```python\nprint(1)\n```",
    "verification_info": '{"test_cases": "{\\"inputs\\": [\\"\\"], \\"outputs\\": [\\"1\\"]}"}',
}


def models_of(config: RunConfig) -> list[str]:
    return sorted({use.model for phase in ("annotators", "teacher") for use in config.uses(phase)})


# --- the run: the flow's own functions, inside a flow ---


def timed_run(run: Run) -> float:
    from prefect import flow

    @flow(name="bench")
    def measured() -> float:
        with session(run) as shared:
            warm(shared)
            started = time.perf_counter()
            missing = answer_tasks(shared)
            publish_results(run)
            seconds = time.perf_counter() - started
        assert not missing, missing
        return seconds

    return measured()


def warm(shared: Session) -> None:
    """Nodes with their models, Dask workers with their verifiers, the upload reader's imports."""
    config = shared.run.config
    pool = shared.pool()
    jobs = [
        pool.submit(Job(f"warm-{n}", "load", {"models": models_of(config)}))
        for n in range(config.provision.node_count())
    ]
    shared.client().run(score_batch, [WARM_ROW, WARM_CODE])
    shared.reader().read(b"", 0)
    for job in jobs:
        job.result()


# --- the plain loop ---

_worker: dict[str, Any] = {}


class InlinePool:
    """The plain loop's node: the job runs here and now; its files stay where it wrote them."""

    def __init__(self, run: Run) -> None:
        self._store, self._uploads = run.store, f"{run.layout.root}/uploads"
        self._engines: dict[str, Any] = {}
        self._key = SigningKey.generate()

    def engine(self, model: str) -> Any:
        if model not in self._engines:
            self._engines[model] = load_engine(model)
        return self._engines[model]

    def submit(self, job: Job, check: Check | None = None) -> "Future[JobResult]":
        place = f"{self._uploads}/{self._key.node_id}"
        out = self._store.local_path(place)
        assert out is not None
        out.mkdir(parents=True, exist_ok=True)
        message = {
            "job_id": job.job_id, "kind": job.kind, "payload": job.payload, "out": str(out),
        }  # fmt: skip
        reply = answer(message, works(self._key), self.engine)
        files = tuple(
            Upload(f"{place}/{name}", hashlib.sha256(data).hexdigest(), len(data))
            for name in reply["files"]
            for data in [(out / name).read_bytes()]
        )
        result = JobResult(job.job_id, self._key.node_id, reply["output"], reply["seconds"], files)
        if check is not None:
            check(result)
        future: Future[JobResult] = Future()
        future.set_result(result)
        return future


class InlineReader(Reader):
    """The plain loop reads uploads where it is."""

    def read(
        self, data: bytes, rows: int | None, schema: pa.Schema = UPLOAD_SCHEMA
    ) -> tuple[bytes, str]:
        return read_upload(data, rows, schema)


class InlineCalls:
    """The plain loop's Dask client: a call is made when it is submitted."""

    def submit(self, function: Any, *arguments: Any, **_: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future

    def map(self, function: Any, batches: Any, **_: Any) -> "list[Future[Any]]":
        return [self.submit(function, batch) for batch in batches]


def start_worker(root: str, run_id: str) -> None:
    import torch

    torch.set_num_threads(1)
    run = find_run(root, run_id)
    pool = InlinePool(run)
    _worker.update(run=run, pool=pool, reader=InlineReader(), calls=InlineCalls())
    for model in models_of(run.config):
        pool.engine(model)
    score_batch([WARM_ROW, WARM_CODE])


def plain_shard(phase: str, shard: Shard) -> None:
    run, pool, calls = _worker["run"], _worker["pool"], _worker["calls"]
    if phase not in _worker:
        _worker[phase] = (
            Generator(run.store, run.layout, run.config.uses(phase), pool, _worker["reader"]),
            Validator(run.store, run.layout, run.config.validation, pool),
            Scorer(
                run.store,
                run.layout,
                run.config.verify,
                calls,
                allow_unaudited=run.config.publish.allow_unaudited,
            ),
        )
    for stage in _worker[phase]:
        stage.run(shard)


def timed_plain(run: Run) -> float:
    config, count = run.config, run.config.provision.node_count()
    with ProcessPoolExecutor(
        count,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=start_worker,
        initargs=(run.store.root, run.run_id),
    ) as workers:
        list(workers.map(time.sleep, [2.0] * count))
        started = time.perf_counter()
        tasks = plan_tasks(read_table(run.store, run.layout.tasks))
        plain_phase(run, workers, "annotators", tasks)
        annotate(run.store, run.layout, config.annotate, producer="annotate")
        chosen = set(
            select_for_teacher(
                read_table(run.store, run.layout.tasks),
                read_table(run.store, run.layout.difficulty),
                config.sft,
            )
        )
        plain_phase(run, workers, "teacher", [t for t in tasks if t.task_id in chosen])
        publish(
            run.store,
            run.layout,
            config.publish,
            annotators=[use.model for use in config.generate.annotators],
            teacher=config.generate.teacher.model,
            config_hash=config.content_hash(),
            code_version=code_version(),
        )
        return time.perf_counter() - started


def plain_phase(run: Run, workers: ProcessPoolExecutor, phase: str, tasks: list[Any]) -> None:
    config = run.config
    commit_plan(
        run.store,
        run.layout,
        phase,
        tasks,
        config.uses(phase),
        config.seed,
        config.first_index(phase),
    )
    futures = [
        workers.submit(plain_shard, phase, shard)
        for shard in read_plan(run.store, run.layout, phase)
    ]
    for future in futures:
        future.result()


# --- both ---


def collected(config: RunConfig, run_id: str) -> Run:
    run = open_run(config, run_id)
    collect_tasks(config.collect, run.store, run.layout)
    return run


def main() -> None:
    watch_this_process()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", default="local")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {"ours": [], "plain": []}
    datasets: set[bytes] = set()
    for number in range(arguments.rounds):
        sides = [("ours", timed_run), ("plain", timed_plain)]
        for name, timed in sides if number % 2 == 0 else reversed(sides):
            root = Path(tempfile.mkdtemp(prefix="tracemill-bench-"))
            try:
                config = load_profile(arguments.profile, [f"storage.root={root}", *arguments.set])
                run = collected(config, "bench")
                seconds = timed(run)
                assert read_manifest(run.store, run.layout.difficulty) is not None
                datasets.add(next(root.rglob("full/*.parquet")).read_bytes())
            finally:
                shutil.rmtree(root, ignore_errors=True)
            times[name].append(seconds)
            print(f"round {number}: {name} {seconds:.1f} s", file=sys.stderr, flush=True)
    assert len(datasets) == 1, "the two sides published different rows"
    ours, plain = (statistics.median(times[name]) for name in ("ours", "plain"))
    print(
        json.dumps(
            {
                "bench": "orchestration",
                "metric": "run_vs_plain_loop",
                "ours": round(ours, 2),
                "peer": round(plain, 2),
                "peer_name": "plain loop",
                "ratio": round(plain / ours, 3),
                "unit": "s",
            }
        )
    )


if __name__ == "__main__":
    main()
