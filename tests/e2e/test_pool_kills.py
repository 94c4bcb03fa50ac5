"""A run whose pool loses an agent and the service itself, both with kill -9, in the middle."""

import json
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def descendants(pid: int, module: str) -> list[psutil.Process]:
    """Processes below one that were started with `-m module`."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if module in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def published(root: Path) -> dict[str, bytes]:
    base = root / "published" / "tracemill-smoke"
    version = base / json.loads((base / "_LATEST.json").read_text())["version"]
    return {str(p.relative_to(version)): p.read_bytes() for p in version.rglob("*.parquet")}


def traces(root: Path) -> list[Path]:
    return sorted((root / "runs" / "hit" / "traces").rglob("*.json"))


def test_the_run_ends_complete_with_the_same_rows(cli, undisturbed):
    process = cli.start(*cli.run_arguments("hit"))
    deadline = time.monotonic() + 1500

    def wait_for(shards: int) -> None:
        while len(traces(cli.root)) < shards:
            assert process.poll() is None, cli.output()
            assert time.monotonic() < deadline, "nothing was generated"
            time.sleep(0.05)

    wait_for(1)
    agents = descendants(process.pid, "infra.pool.agent")
    assert len(agents) == 2
    workers = [
        child for child in agents[0].children() if "tasks.provision.worker" in child.cmdline()
    ]
    while workers[0].cpu_percent(0.3) < 20.0:  # until it is in the middle of a shard
        assert process.poll() is None and time.monotonic() < deadline, cli.output()
    agents[0].kill()
    wait_for(2)
    (service,) = descendants(process.pid, "infra.pool.service")
    service.kill()
    assert process.wait(1500) == 0, cli.output()
    assert not any(worker.is_running() for worker in workers), "the agent's worker lived on"
    funnel = json.loads((cli.root / "runs" / "hit" / "funnel.json").read_text())
    assert funnel["complete"] and not funnel["missing"] and not funnel["problems"]
    assert published(cli.root) == published(undisturbed)
    ledger = sorted((cli.root / "ledger").iterdir())
    records = [json.loads(path.read_text())["record"] for path in ledger]
    accepted = [r["shard_id"] for r in records if r["kind"] == "verdict" and r["accepted"]]
    assert len(accepted) == len(set(accepted)) > 0
