"""End what a killed process has left: `python -m infra.reaper VARIABLE MARK`.

A process that is ended with kill -9 cannot stop its children. Its reaper waits for its end (the
reaper's stdin closes with it) and then kills the processes that carry its mark in their
environment, and the containers that carry it as a label; after an orderly end there are none. A
mark is inherited, so that a grandchild in a session of its own is found too.
"""

import os
import shutil
import subprocess
import sys
import uuid

import psutil

FLOW = "TRACEMILL_FLOW_MARK"
AGENT = "TRACEMILL_AGENT_MARK"


def watch_this_process(variable: str = FLOW) -> str:
    """Mark this process, so that its children carry the mark, and start its reaper.

    Returns the mark. A process whose parent is marked with the same variable is watched already.
    """
    if variable in os.environ:
        return os.environ[variable]
    mark = uuid.uuid4().hex
    environment = dict(os.environ)
    os.environ[variable] = mark
    # The pipe is kept open by this process alone: it closes with it, however it ends.
    subprocess.Popen(
        [sys.executable, "-m", "infra.reaper", variable, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    return mark


def marked(variable: str, mark: str) -> list[psutil.Process]:
    """Processes of this user that carry the mark, but for this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(variable) == mark and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            continue
    return found


def end_marked(variable: str, mark: str) -> None:
    """Kill everything else that carries the mark."""
    for process in marked(variable, mark):
        try:
            process.kill()
        except psutil.Error:
            continue


def remove_containers(variable: str, mark: str) -> None:
    """Remove the containers that carry the mark, where there is docker."""
    docker = shutil.which("docker")
    if docker is None:
        return
    found = subprocess.run(
        [docker, "ps", "-aq", "--filter", f"label={variable}={mark}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if names := found.stdout.split():
        subprocess.run([docker, "rm", "-f", *names], capture_output=True, check=False)


def main(variable: str, mark: str) -> None:
    """Wait for the watched process to end, then end what it left."""
    sys.stdin.buffer.read()
    end_marked(variable, mark)
    if variable == AGENT:
        remove_containers(variable, mark)


if __name__ == "__main__":
    main(*sys.argv[1:])
