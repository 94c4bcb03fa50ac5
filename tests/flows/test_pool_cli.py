"""A pool over TLS with the commands that a person would type: serve, invite, join, leave."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "tasks" / "provision" / "node.py"
WAIT = 120.0
SETTINGS = """
[canary]
image = "worker"
payload = { payload = { echo = { n = 41 } } }
expected = { n = 41 }
"""


class Shell:
    """Somebody's shell: a config directory of his own."""

    def __init__(self, home: Path):
        self.home = home
        home.mkdir()
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        env = dict(os.environ) | {
            "XDG_CONFIG_HOME": str(self.home / "config"), "XDG_STATE_HOME": str(self.home / "state")
        }  # fmt: skip
        with (self.home / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *arguments],
                cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.started.append(process)
        return process

    def log(self) -> str:
        return " ".join((self.home / "log").read_text().split())

    def until(self, words: str) -> None:
        deadline = time.monotonic() + WAIT
        while words not in self.log():
            assert self.started[-1].poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)


@pytest.fixture
def shells(tmp_path):
    made = Shell(tmp_path / "operator"), Shell(tmp_path / "stranger")
    yield made
    for shell in made:
        for process in shell.started:
            process.kill()
            process.wait()


def test_a_stranger_joins_over_tls(shells, tmp_path):
    operator, stranger = shells
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, root = f"https://127.0.0.1:{port}", str(tmp_path / "data")
    settings, images = tmp_path / "pool.toml", tmp_path / "images.toml"
    settings.write_text(SETTINGS)
    images.write_text(
        f'[images.worker]\ncommand = ["{sys.executable}", "-S", "{WORKER}"]\nkey = true'
    )
    service = operator.start(
        "pool", "serve", "--root", root, "--tls", "--port", str(port), "--settings", str(settings)
    )
    ca = operator.home / "config" / "tracemill" / "pool-ca" / "ca.pem"
    operator.until(f"nodes need the pool's CA: {ca}")
    deadline = time.monotonic() + WAIT
    while True:
        made = operator.start("pool", "invite", url, "--root", root)
        invite = made.communicate(timeout=WAIT)[0].decode().strip()
        if made.returncode == 0:
            break
        assert time.monotonic() < deadline, operator.log()
    assert f"tracemill node join {url} --invite {invite} --ca ca.pem" in operator.log()

    asked = ["node", "join", url, "--invite", invite, "--images", str(images)]
    assert stranger.start(*asked).wait(WAIT) == 1
    assert "give the PEM of its CA (--ca)" in stranger.log()
    agent = stranger.start(*asked, "--ca", str(ca))
    stranger.until("is admitted")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(WAIT) == 0, stranger.log()
    service.send_signal(signal.SIGTERM)
    service.wait(WAIT)
    assert "Traceback" not in operator.log()
