"""Workers in containers: their names become free again, and what they write comes back."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from infra.pool.agent.images import Images
from infra.pool.agent.launch import Launcher
from infra.pool.agent.links import Links
from infra.pool.agent.shards import Lease, Place, ShardRunner
from infra.pool.wire import Assignment, NewShard, Results, ShardsRequest, ShardWork

IMAGE = "org/worker:1"
WORKER = """
import json, os, sys, time
from pathlib import Path
print(json.dumps({"node_id": os.environ["NODE_ADDRESS"]}), flush=True)
for line in sys.stdin:
    job = json.loads(line)
    out = Path(job["out"])
    (out / "begun").touch()
    time.sleep(job["payload"].get("sleep", 0))
    (out / "rows").write_bytes(bytes(range(256)) * 1000)
    answer = {"output": {"out": job["out"]}, "seconds": 0.1, "files": ["rows"]}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Puts a docker before all others; the directory of its state."""
    state, program = tmp_path / "docker-state", tmp_path / "bin" / "docker"
    state.mkdir()
    program.parent.mkdir()
    source = Path(__file__).with_name("docker.py")
    root = Path(__file__).parents[4]
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={root} DOCKER_STATE={state} exec {sys.executable} {source} "$@"\n'
    )
    program.chmod(0o755)
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    images = {IMAGE: [sys.executable, "-S", str(worker)]}
    (state / "images.json").write_text(json.dumps(images))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return state


class Service:
    """Hands out the shards that a test leases."""

    def call(self, method, path, body=None, answer=None, **options):
        assert (method, answer) == ("GET", ShardWork)
        shard_id = path.rsplit("/", 1)[1]
        payload = {"payload": {"sleep": 300}}
        return ShardWork(shard_id=shard_id, task_id="t", payload=payload)


def test_another_lease_in_the_middle_of_a_shard_gets_a_worker(docker, tmp_path):
    """Ending the client of docker alone left the container, and its name was taken."""
    (tmp_path / "key").write_bytes(bytes(32))
    launcher = Launcher(
        Images(), "ab" * 32, tmp_path / "key", tmp_path / "work", "mark", docker=True, p2p_seed=7,
        links=Links(tmp_path / "key", tmp_path / "links"),
    )  # fmt: skip
    launch = launcher.launch(
        Assignment(
            id="0b7e", name="t", image=IMAGE, env_vars={}, cmd=None, entrypoint=None,
            volume_mounts=[], sharded=True,
        )
    )  # fmt: skip
    runner = ShardRunner(Service(), Place("g", 1, 0, "0b7e"), launch, lambda: None)
    pause = threading.Event()

    def begun() -> set[Path]:
        return set(launch.data.glob("*/begun"))

    def until(is_so) -> None:
        for _ in range(1200):
            if is_so():
                return
            assert not runner.broken
            pause.wait(0.05)
        raise AssertionError("it does not come to it")

    try:
        runner.assign(Lease("s1", 1.0))
        until(begun)
        first = begun()
        runner.assign(Lease("s2", 2.0))
        until(lambda: begun() - first)
    finally:
        runner.close()
    assert not list(docker.glob("prime-task-*")), "a container is left"
    assert not begun(), "what it wrote is left"


def test_files_of_a_container_are_uploaded_and_a_restart_finds_its_name_free(pool, docker):
    for agent in pool.agents:
        agent.kill()
        agent.wait()
    pool.agent(pool.invite(), "docker", docker=True)
    pool.until(lambda: "is admitted" in pool.log("docker"), "the agent is admitted")
    node = next(n for n in pool.nodes() if n["status"] in ("WaitingForHeartbeat", "Healthy"))
    task_id = pool.task(image=IMAGE, sharded=True)

    def add(name: str, payload: dict) -> None:
        shard = NewShard(shard_id=f"{task_id[:8]}.{name}", payload={"payload": payload})
        pool.client.call("POST", f"/tasks/{task_id}/shards", ShardsRequest(shards=[shard]))

    def results() -> list:
        return pool.client.call("GET", f"/tasks/{task_id}/results", answer=Results).results

    add("a", {})
    pool.until(lambda: len(results()) == 1, "the container works")
    row = results()[0]
    assert row.output["out"].startswith("/data/")
    stored = pool.directory / "root" / row.files[0].name
    assert stored.read_bytes() == bytes(range(256)) * 1000
    started = lambda: (docker / "log").read_text().count('"run"')  # noqa: E731
    before = started()
    pool.client.call("POST", f"/nodes/{node['address']}/restart")
    pool.until(lambda: started() > before, "the container is started again")
    add("b", {})
    pool.until(lambda: len(results()) == 2, "it works again")
    pool.client.call("DELETE", f"/tasks/{task_id}")
    pool.until(lambda: not list(docker.glob("prime-task-*")), "the container is gone")
