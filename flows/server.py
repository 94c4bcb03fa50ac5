"""`tracemill up` and `down`: a Prefect server, a work pool, a worker and all deployments, local.

Invariants: everything binds to loopback; the ids of the processes stand in a state file of the
user, and `down` ends exactly those; `up` on a machine where it is up says so and changes nothing.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from rich.console import Console

from flows.errors import FlowError
from flows.work_pools import WORK_POOL

HOST = "127.0.0.1"
START_SECONDS = 300
STOP_SECONDS = 15
ROOT = Path(__file__).resolve().parent.parent


class ServerError(FlowError):
    """The server, the worker or the deployments could not be started."""


def state_dir() -> Path:
    """Where pids and logs lie."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tracemill"


def start(port: int, err: Console) -> str:
    """Start all of it and return the URL of the UI."""
    if _living(_read_state()):
        raise ServerError(f"it is up already ({_state_file()}); stop it with `tracemill down`")
    if _answers(port):
        raise ServerError(f"port {port} is taken by another server; choose another --port")
    url = f"http://{HOST}:{port}"
    env = dict(os.environ) | {
        "PREFECT_API_URL": f"{url}/api",
        "PREFECT_UI_API_URL": f"{url}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    started: list[int] = []
    with ExitStack() as undo:
        undo.callback(stop)
        err.print("starting the server (the first time takes about a minute) ...")
        started.append(
            _spawn("server", ["server", "start", "--host", HOST, "--port", str(port)], env)
        )
        _write_state(started)
        _wait_for(port, started[0])
        _run(["-m", "flows.work_pools"], env)
        err.print("deploying ...")
        _run(["-m", "prefect", "--no-prompt", "deploy", "--all"], env)
        started.append(_spawn("worker", ["worker", "start", "--pool", WORK_POOL], env))
        _write_state(started)
        undo.pop_all()
    return url


def stop() -> bool:
    """End what `start` started, workers first; whether there was anything."""
    processes = _living(_read_state())
    children = [child for process in processes for child in process.children(recursive=True)]
    for process in reversed(processes):
        process.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs([*processes, *children], STOP_SECONDS)
    for process in alive:
        process.kill()
    _state_file().unlink(missing_ok=True)
    return bool(processes)


def _run(arguments: list[str], env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise ServerError(f"python {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def _spawn(name: str, arguments: list[str], env: dict[str, str]) -> int:
    state_dir().mkdir(parents=True, exist_ok=True)
    with (state_dir() / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process.pid


def _wait_for(port: int, pid: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if _answers(port):
            return
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.5)
    raise ServerError(f"the server did not start; see {state_dir() / 'server.log'}")


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://{HOST}:{port}/api/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _state_file() -> Path:
    return state_dir() / "up.json"


def _write_state(pids: list[int]) -> None:
    """Pids with start times: a pid alone may be another process by now."""
    state = [[pid, psutil.Process(pid).create_time()] for pid in pids]
    _state_file().write_text(json.dumps(state), encoding="utf-8")


def _read_state() -> list[tuple[int, float]]:
    try:
        return [(int(pid), float(at)) for pid, at in json.loads(_state_file().read_text("utf-8"))]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def _living(state: list[tuple[int, float]]) -> list[psutil.Process]:
    living = []
    for pid, created in state:
        try:
            process = psutil.Process(pid)
            if process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
        except psutil.NoSuchProcess:
            continue
    return living
