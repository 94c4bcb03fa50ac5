"""A standing task's log: its end is told, and it does not fill the node's disk."""

import os
import sys
import time

import pytest

from infra.pool.agent import standing
from infra.pool.agent.launch import Launch
from infra.pool.agent.shards import Place
from infra.pool.agent.standing import StandingRunner
from infra.pool.client import PoolClient
from infra.pool.wire import Assignment

TALKS = """
import time
line = "x" * 1023
for number in range(40):
    print(line, flush=True)
    time.sleep(0.01)
print("the end", flush=True)
time.sleep(60)
"""


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.setattr(standing, "MAX_LOG_BYTES", 8192)
    monkeypatch.setattr(standing, "LOG_LOOK", 0.05)
    task = Assignment(
        id="t", name="t", image="i", env_vars={}, cmd=None, entrypoint=None, volume_mounts=[],
        sharded=False,
    )  # fmt: skip
    command = (sys.executable, "-c", TALKS)
    launch = Launch(command, os.environ, tmp_path, tmp_path / "socket")
    nobody = PoolClient("http://127.0.0.1:9")
    made = StandingRunner(nobody, Place("g", 1, 0, "t"), task, launch, lambda: None)
    yield made
    made.close()


def test_of_a_long_log_the_end_stays(runner):
    deadline = time.monotonic() + 30
    while "the end" not in runner.logs(100_000):
        assert time.monotonic() < deadline, runner.state
        time.sleep(0.05)
    time.sleep(0.2)
    written = os.fstat(runner._log.fileno()).st_size
    assert written <= 8192 < 40 * 1024
