"""What dies under the verify stage: workers, the scheduler; many rows with hostile ones."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import pytest
from distributed import Client

from data_contracts.ids import model_slug
from infra.storage import RunLayout, Store, list_committed, read_table
from tasks.generate.plan import shards
from tasks.verify import score
from tasks.verify.cluster import SETTINGS, dask_client
from tasks.verify.config import VerifyConfig
from tasks.verify.errors import SchedulerLost, WorkersLost
from tasks.verify.score import score_over_dask
from tasks.verify.stage import Scorer

ROOT = Path(__file__).parents[3]


def math(answer: str, text: str = "") -> dict[str, str]:
    return {
        "task_type": "verifiable_math",
        "completion": f"<think>{text}</think>\\boxed{{{answer}}}",
        "verification_info": '{"ground_truth": "7"}',
    }


def test_a_cluster_without_workers_is_no_endless_wait(monkeypatch):
    monkeypatch.setattr(score, "LONELY_SECONDS", 2.0)
    monkeypatch.setattr(score, "_LOOK_SECONDS", 0.5)
    with dask_client(VerifyConfig(workers=1)) as client:
        client.cluster.scale(0)
        with pytest.raises(WorkersLost, match="resume"):
            score_over_dask([math("7")], client, batch_rows=1)


@contextmanager
def cluster(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A scheduler and a worker as processes of their own."""
    parts = []
    try:
        for what, arguments in (
            ("scheduler", ["--host", "127.0.0.1", "--port", str(port)]),
            ("worker", [f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-nanny"]),
        ):
            command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard"]
            parts.append(
                subprocess.Popen([*command, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
            )
        yield parts[0]
    finally:
        for part in parts:
            part.kill()
            part.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_schedulers_death_repeats_nothing_that_is_committed(tmp_path, unused_port):
    from tests.bench.verify_scale import MODEL, faults, make_run

    store, layout = Store(str(tmp_path)), RunLayout("bench")
    known = make_run(store, layout, rows=1500, long=0, shard_rows=100)
    todo = shards(read_table(store, layout.plan("annotators")))
    config = VerifyConfig(scheduler=f"tcp://127.0.0.1:{unused_port}")
    with cluster(unused_port) as scheduler, dask.config.set(SETTINGS):
        with Client(config.scheduler, set_as_default=False, timeout=120) as client:
            scorer = Scorer(store, layout, config, client, allow_unaudited=False)
            for shard in todo[:3]:
                scorer.run(shard)
            scheduler.kill()
            with pytest.raises(SchedulerLost, match="resume"):
                for shard in todo[3:]:
                    scorer.run(shard)
    where = f"{layout.root}/rewards/{model_slug(MODEL)}"
    files = sorted((tmp_path / where).glob("*"))
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}
    assert 3 <= len(list_committed(store, where)) < len(todo)
    with dask_client(VerifyConfig(workers=1)) as client:
        scorer = Scorer(store, layout, config, client, allow_unaudited=False)
        for shard in todo:
            scorer.run(shard)
    assert not faults(store, layout, known)
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files} == before


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.timeout(900)
def test_mixed_rows_with_hostile_ones_are_all_scored_right():
    command = [sys.executable, "-m", "tests.bench.verify_scale", "--rows", "600", "--long", "0"]
    started = time.monotonic()
    done = subprocess.run([*command, "--workers", "1"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = {line["metric"]: line["ours"] for line in map(json.loads, done.stdout.splitlines())}
    assert figures["verify_scale_faults"] == 0
    assert 0 < figures["verify_scale_seconds"] < time.monotonic() - started
