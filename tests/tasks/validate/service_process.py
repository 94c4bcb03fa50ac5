"""The validator service in a process of its own, and its client."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[3]
MODEL = "tracemill/nano-s"
TOKEN = "a-token-of-the-tests-0123456789"
SECONDS = 240


class Service:
    """`tracemill validator serve` in a process of its own."""

    def __init__(self, root: str, state: Path, log: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._command = [
            sys.executable, "-m", "flows.cli", "validator", "serve", "--model", MODEL,
            "--root", root, "--port", str(self.port), "--state", str(state),
        ]  # fmt: skip
        self._env = os.environ | {"TRACEMILL_VALIDATOR_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
        self._log = log
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )

    def start(self) -> "Service":
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._env, stdout=log, stderr=log
            )
        self.wait(lambda: self._health() is not None)
        return self

    def _health(self) -> httpx.Response | None:
        try:
            return self.client.get("/health")
        except httpx.TransportError:
            return None

    def wait(self, condition) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def trigger(self, name: str, sha: str, address: str) -> httpx.Response:
        return self.client.post(f"/validate/{name}", json={"file_sha": sha, "address": address})

    def raw(self, method: str, path: str, body: str) -> int:
        """The answer to a path that no client has cleaned up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        connection.request(method, path, body, headers)
        return connection.getresponse().status

    def result(self, name: str, path: str = "status") -> dict:
        answers: list[dict] = []

        def done() -> bool:
            answers.append(self.client.get(f"/{path}/{name}").raise_for_status().json())
            return answers[-1]["status"] != "pending"

        self.wait(done)
        return answers[-1]

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
