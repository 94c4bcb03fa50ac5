"""Nodes of a Prefect work pool: started for a run, waited for, at work, cancelled in the end."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings
from prefect.testing.utilities import prefect_test_harness

from flows.node_runs import BLOCK
from flows.nodes import pool_of
from infra.pool import Job
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError
from infra.storage import Store
from tasks.provision.config import ProvisionConfig

ROOT = Path(__file__).resolve().parents[2]
SERVE = "from flows.serve_node import serve_node; serve_node.serve(name='cpu')"
WAIT = 600


def until(is_so, what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < deadline, f"not so: {what}"
        time.sleep(0.5)


def test_a_pool_of_its_own_needs_no_work_pools():
    with pytest.raises(ValueError, match=r"work_pools need a pool's service"):
        ProvisionConfig(work_pools=[{"deployment": "serve-node/cpu", "nodes": 1}])


def finals(client) -> list[str]:
    runs = client.read_flow_runs()
    return [run.state.name for run in runs if run.state and run.state.is_final()]


def agents(pid: int) -> list[psutil.Process]:
    """Agents below the runner of flows."""
    return [
        child
        for child in psutil.Process(pid).children(recursive=True)
        if "infra.pool.agent" in child.cmdline()
    ]


@pytest.fixture
def service(tmp_path, monkeypatch):
    key = secrets.token_urlsafe(32)
    monkeypatch.setenv("TRACEMILL_POOL_ADMIN_KEY", key)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {
        "root": str(tmp_path / "root"), "database": str(tmp_path / "pool.sqlite"), "port": port,
        "settings": {"requests_per_minute": 1e5},
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "infra.pool.service", json.dumps(config)], stdin=subprocess.PIPE
    )
    client = PoolClient(f"http://127.0.0.1:{port}", admin_key=key)

    def up() -> bool:
        try:
            client.call("GET", "/health", patience=0.0)
        except PoolError:
            return False
        return True

    until(up, "the service is up")
    yield f"http://127.0.0.1:{port}"
    client.close()
    process.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_nodes_come_work_and_go(service, tmp_path):
    with prefect_test_harness(server_startup_timeout=300):
        api = get_current_settings().api.url
        env = dict(os.environ) | {"PREFECT_API_URL": str(api)}
        runner = subprocess.Popen([sys.executable, "-c", SERVE], cwd=ROOT, env=env)
        try:
            with get_client(sync_client=True) as client:

                def deployed() -> bool:
                    return any(d.name == "cpu" for d in client.read_deployments())

                until(deployed, "the flow is served")
                config = ProvisionConfig(
                    service=service,
                    work_pools=[{"deployment": "serve-node/cpu", "nodes": 2}],
                    ready_seconds=WAIT,
                )
                with pool_of(config, Store(str(tmp_path / "root")), "runs/x") as pool:
                    assert len(pool.nodes()) == 2
                    jobs = [
                        pool.submit(Job(f"load-{n}", "load", {"models": ["tracemill/nano-s"]}))
                        for n in range(2)
                    ]
                    assert [job.result(WAIT).output["models"] for job in jobs] == [1, 1]
                    assert all(node.state == "Healthy" for node in pool.nodes())
                    killed = agents(runner.pid)[0]
                    killed.kill()
                    # Nothing is to be done: nobody is wanted in its place. Then there is.
                    until(lambda: len(finals(client)) == 1, "the run of the killed node has ended")
                    more = [
                        pool.submit(Job(f"more-{n}", "load", {"models": ["tracemill/nano-s"]}))
                        for n in range(2000)
                    ]
                    until(lambda: len(client.read_flow_runs()) == 3, "another is started")
                    for job in more:
                        job.cancel()
                    blocks = client.read_block_documents_by_type("secret")
                    assert len([b for b in blocks if b.name.startswith(BLOCK)]) == 2

                until(lambda: len(finals(client)) == 3, "the runs are cancelled")
                states = sorted(run.state.name for run in client.read_flow_runs())
                assert states == ["Cancelled", "Cancelled", "Failed"]
                assert not client.read_block_documents_by_type("secret")
        finally:
            runner.terminate()
            runner.wait(60)
