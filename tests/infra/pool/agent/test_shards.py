"""The worker of a place over several leases; real processes, leases by hand."""

import os
import sys
import time
from pathlib import Path

import pytest

from infra.pool.agent.launch import Launch
from infra.pool.agent.shards import Lease, Place, ShardRunner
from infra.pool.wire import ShardFailure, ShardResult, ShardWork

PROGRAM = """
import json, os, sys, time
print(json.dumps({"node_id": "me"}), flush=True)
for line in sys.stdin:
    job = json.loads(line)
    with open(job["payload"]["log"], "a") as log:
        print(job["job_id"], os.getpid(), file=log)
    if job["job_id"] == "mute":
        # As a killed process for a moment: nothing more is to be read, and it is not gone yet.
        while not os.path.exists(job["payload"]["log"] + ".go"):
            time.sleep(0.01)
        os.close(1)
        time.sleep(600)
    print(json.dumps({"output": {"pid": os.getpid()}, "seconds": 0.1, "files": []}), flush=True)
"""


class Service:
    """Hands out what a test leases, and keeps what is reported."""

    def __init__(self, log: Path):
        self.log = log
        self.said: list[ShardResult | ShardFailure] = []

    def call(self, method, path, body=None, answer=None, **options):
        if method == "GET":
            shard_id = path.rsplit("/", 1)[1]
            payload = {"payload": {"log": str(self.log)}}
            return ShardWork(shard_id=shard_id, task_id="t", payload=payload)
        self.said.append(body)
        return None


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "log")


@pytest.fixture
def runner(service, tmp_path):
    command = (sys.executable, "-S", "-c", PROGRAM)
    launch = Launch(command, dict(os.environ), tmp_path, tmp_path / "socket")
    made = ShardRunner(service, Place("g", 1, 0, "t"), launch, lambda: None)
    yield made
    made.close()


def until(is_so) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begun(service) -> list[list[str]]:
    return [line.split() for line in service.log.read_text().splitlines()]


def test_a_worker_that_is_ending_is_given_no_other_shard(runner, service):
    runner.assign(Lease("mute", 1.0))
    until(lambda: service.log.exists())
    runner.assign(None)
    service.log.with_name("log.go").touch()
    until(lambda: runner.shard_id == "" and not runner._asking)
    runner.assign(Lease("next", 2.0))
    until(lambda: service.said)
    (_, first), (_, second) = begun(service)
    assert isinstance(service.said[0], ShardResult) and first != second


def test_a_worker_that_dies_while_it_waits_is_no_shards_failure(runner, service):
    runner.assign(Lease("a", 1.0))
    until(lambda: service.said)
    worker = runner._worker
    os.kill(int(begun(service)[0][1]), 9)
    until(lambda: not worker.alive)
    runner.assign(Lease("b", 2.0))
    until(lambda: len(service.said) == 2)
    assert [type(said) for said in service.said] == [ShardResult, ShardResult]
