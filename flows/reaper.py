"""End what a killed flow has left: `python -m flows.reaper MARK`.

A flow that is ended with kill -9 cannot stop its children, and Prefect's temporary server would
live on. The reaper waits for the end of the flow (its stdin closes with it) and then kills the
processes that carry the flow's mark in their environment; after an orderly end there are none.
"""

import os
import subprocess
import sys
import uuid

import psutil

VARIABLE = "TRACEMILL_FLOW_MARK"


def watch_this_process() -> None:
    """Mark this process, so that its children carry the mark, and start its reaper."""
    if VARIABLE in os.environ:
        return
    mark = uuid.uuid4().hex
    environment = dict(os.environ)
    os.environ[VARIABLE] = mark
    # The pipe is kept open by this process alone: it closes with it, however it ends.
    subprocess.Popen(
        [sys.executable, "-m", "flows.reaper", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


def marked(mark: str) -> list[psutil.Process]:
    """Processes of this user that carry the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(VARIABLE) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def main(mark: str) -> None:
    """Wait for the flow to end, then end what it left."""
    sys.stdin.buffer.read()
    for process in marked(mark):
        try:
            process.kill()
        except psutil.Error:
            continue


if __name__ == "__main__":
    main(sys.argv[1])
