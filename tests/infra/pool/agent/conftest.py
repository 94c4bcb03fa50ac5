"""The real service, and agents that are started by hand."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infra.pool.agent.config import AgentConfig
from infra.pool.agent.images import Images, LocalCommand
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError
from infra.pool.wire import Answer, Invite, InviteRequest, TaskAnswer, TaskRequest

WORKER = Path(__file__).parents[3] / "tasks" / "provision" / "node.py"
WAIT = 120.0


class Nodes(Answer):
    nodes: list[dict[str, Any]]


class Pool:
    """A service with an admin key."""

    def __init__(self, directory: Path, **core: float):
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url, admin_key = f"http://127.0.0.1:{port}", secrets.token_urlsafe(32)
        self.client = PoolClient(self.url, admin_key=admin_key)
        config = {
            "root": str(directory / "root"), "database": str(directory / "pool.sqlite"),
            "port": port, "settings": {
                "tick_seconds": 0.1, "requests_per_minute": 1e5,
                "topologies": [{"name": "pair", "min_group_size": 2, "max_group_size": 2}],
                # What agents that share some busy cores measure says nothing of them.
                "core": {"max_rate_ratio": 1e9} | core,
            },
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.pool.service", json.dumps(config)],
            stdin=subprocess.PIPE,
            env=dict(os.environ) | {"TRACEMILL_POOL_ADMIN_KEY": admin_key},
        )
        self.agents: list[subprocess.Popen[bytes]] = []
        self.until(lambda: self.healthy(), "the service is up")

    def healthy(self) -> bool:
        try:
            self.client.call("GET", "/health", patience=0.0)
        except PoolError:
            return False
        return True

    def invite(self, **values: Any) -> str:
        return self.client.call("POST", "/invites", InviteRequest(**values), Invite).invite

    def agent(self, invite: str, name: str, **values: Any) -> "subprocess.Popen[bytes]":
        """An agent whose list has the worker of the tests and a shell command."""
        images = {
            "worker": LocalCommand(command=[sys.executable, "-S", str(WORKER)], key=True),
            "shell": LocalCommand(command=["sh", "-c"], arguments=True),
        }
        config = AgentConfig(
            url=self.url, invite=invite, key_file=self.directory / f"{name}.key",
            images=Images(images=images), **values,
        )  # fmt: skip
        log = (self.directory / f"{name}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "infra.pool.agent"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
        assert process.stdin is not None
        process.stdin.write(config.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        self.agents.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def nodes(self) -> list[dict[str, Any]]:
        path = "/nodes?include_dead=true"
        return self.client.call("GET", path, answer=Nodes).nodes

    def task(self, **values: Any) -> str:
        request = TaskRequest(**{"name": secrets.token_hex(4)} | values)
        return self.client.call("POST", "/tasks", request, TaskAnswer).task.id

    def until(self, is_so, what: str) -> None:
        deadline = time.monotonic() + WAIT
        while not is_so():
            assert self.process.poll() is None, "the service ended"
            assert time.monotonic() < deadline, f"not so: {what}"
            time.sleep(0.05)

    def close(self) -> None:
        for agent in self.agents:
            agent.kill()
            agent.wait()
        self.process.kill()
        self.process.wait()
        self.client.close()


@pytest.fixture(scope="module")
def make_pool(tmp_path_factory):
    made: list[Pool] = []

    def make(**core: float) -> Pool:
        made.append(Pool(tmp_path_factory.mktemp("pool"), **core))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def pool(make_pool):
    return make_pool()
