"""The real service as a child process, and nodes that sign what they send."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.pool.signature import EPOCH, sign_request
from toploc.signing import SigningKey

ADMIN_KEY = "k" * 40
SETTINGS = {
    "challenge": False,
    "tick_seconds": 0.1,
    "head_seconds": 1.5,
    "body_seconds": 1.5,
    "requests_per_minute": 80,
    "strangers_per_minute": 1000,
}


class Service:
    """One pool on a free port; it may be killed and started again."""

    def __init__(
        self, directory: Path, settings: dict[str, Any], database: str = "", root: str = ""
    ) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.root = directory / "root"
        self._config = {
            "root": root or str(self.root),
            "database": database or str(directory / "db" / "pool.sqlite"),
            "port": self.port,
            "settings": SETTINGS | settings,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.nodes: list[Node] = []
        self.http = httpx.Client(base_url=self.url, timeout=30)

    def start(self) -> None:
        env = dict(os.environ) | {
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "TRACEMILL_POOL_ADMIN_KEY": ADMIN_KEY,
        }
        env.pop("PREFECT_API_URL", None)
        command = [sys.executable, "-m", "infra.pool.service", json.dumps(self._config)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
        deadline = time.monotonic() + 250
        while time.monotonic() < deadline:
            try:
                if self.http.get("/health").is_success:
                    return
            except httpx.TransportError:
                assert self.process.poll() is None, "the service ended"
            time.sleep(0.05)
        raise AssertionError("the service did not start")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.http.close()
        self.http = httpx.Client(base_url=self.url, timeout=30)

    def end(self) -> None:
        """As its parent ends it."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == -signal.SIGTERM  # uvicorn, after it has shut down
        self.http.close()
        self.http = httpx.Client(base_url=self.url, timeout=30)

    def stop(self) -> None:
        self.http.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def admin(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        return self.http.request(method, path, headers=headers, **options)

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> dict[str, Any]:
        answer = self.admin(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == status, answer.text
        return answer.json()

    def node(self, **said: Any) -> "Node":
        """A node that has joined."""
        node = Node(self)
        invite = self.ask("POST", "/invites", {})["invite"]
        body = {"id": node.id, "invite": invite, "worker_p2p_id": f"p2p-{node.id[:6]}"} | said
        node.ask("PUT", "/nodes", body)
        self.nodes.append(node)
        return node

    def clear(self) -> None:
        """Nodes and tasks go, so that the next test has the pool to itself."""
        while self.nodes:
            self.nodes.pop().request("POST", "/nodes/gone")
        self.ask("DELETE", "/tasks/all")

    def task(self, name: str, shards: int = 0, **more: Any) -> str:
        body = {"name": name, "image": "local/worker", "sharded": shards > 0} | more
        task_id = str(self.ask("POST", "/tasks", body)["task"]["id"])
        if shards:
            new = [{"shard_id": f"{name}-{n}", "payload": {"n": n}} for n in range(shards)]
            self.ask("POST", f"/tasks/{task_id}/shards", {"shards": new})
        return task_id


class Node:
    """Somebody with a key."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.key = SigningKey.generate()
        self.id = self.key.node_id
        self.epoch = service.http.get("/epoch").json()["epoch"]

    def signed(
        self, method: str, path: str, body: Any = None, query: str = ""
    ) -> tuple[str, str, dict[str, str], bytes]:
        """(method, URL, headers, body) of a request, to be sent as it is or changed."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = sign_request(self.key, self.epoch, method, path, query, data)
        if data:
            headers["content-type"] = "application/json"
        return method, path + (f"?{query}" if query else ""), headers, data

    def send(self, request: tuple[str, str, dict[str, str], bytes]) -> httpx.Response:
        method, url, headers, data = request
        return self.service.http.request(method, url, headers=headers, content=data)

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        answer = self.send(self.signed(method, path, body))
        if answer.status_code == 401 and EPOCH in answer.headers:
            self.epoch = answer.headers[EPOCH]
            answer = self.send(self.signed(method, path, body))
        return answer

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.request(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def beat(self, **said: Any) -> dict[str, Any]:
        return self.ask("POST", "/heartbeat", {"address": self.id} | said)["data"]

    def wait(self, what: str, **said: Any) -> dict[str, Any]:
        """What the node is told, once it has something under a key; by heartbeats that wait."""
        deadline, seen = time.monotonic() + 60, ""
        while time.monotonic() < deadline:
            body = {"address": self.id, "wait_seconds": 10.0, "seen": seen} | said
            answer = self.ask("POST", "/heartbeat", body)
            if answer["data"][what]:
                return answer["data"]
            seen = answer["etag"]
        raise AssertionError(f"no {what}")

    def group(self) -> dict[str, Any]:
        """Wait for a group, and say that it is loaded."""
        group = self.wait("group")["group"]
        self.beat(group_id=group["group_id"], group_version=group["version"])
        return group

    def shard(self, group: dict[str, Any]) -> str:
        """Wait for a lease."""
        said = {"group_id": group["group_id"], "group_version": group["version"]}
        return str(self.wait("shard_id", **said)["shard_id"])


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Makes and starts services of their own."""
    made: list[Service] = []

    def make(settings: dict[str, Any] | None = None, **options: Any) -> Service:
        made.append(Service(tmp_path / str(len(made)), settings or {}, **options))
        made[-1].start()
        return made[-1]

    yield make
    for service in made:
        service.stop()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("pool"), {})
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def clear(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "service" in request.fixturenames:
        request.getfixturevalue("service").clear()
