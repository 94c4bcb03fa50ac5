"""Owner side of the template process: start it, get workers from it, kill workers.

One template per process, started on first use; a fork of the owner starts its own.
"""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from verifiers import wire
from verifiers.errors import WorkerLost

_START_TIMEOUT = 600.0
"""A template that dies is noticed at once; this is for one that hangs, not for a busy machine."""
_CPUCLOCK_SCHED = 2
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # some scorers iterate over sets
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class WorkerHandle:
    """A live worker process."""

    def __init__(self, sock: socket.socket, pid: int):
        self.sock = sock
        self.pid = pid
        self._pidfd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1

    def cpu_seconds(self) -> float:
        """CPU time of the process so far; 0 when it is gone."""
        try:
            if sys.platform == "linux":
                # The process's own clock (clock_getcpuclockid): one call, where psutil opens files.
                return time.clock_gettime(~self.pid << 3 | _CPUCLOCK_SCHED)
            times = psutil.Process(self.pid).cpu_times()
        except (OSError, psutil.Error):
            return 0.0
        return float(times.user + times.system)

    def kill(self) -> None:
        """Kill the process; its sandboxes die with it."""
        self.sock.close()
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


class Template:
    """The process that forks workers."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parent.parent)
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self._sock = ours
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                f"from verifiers.worker import main; main({theirs.fileno()})",
            ],
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self.owner = os.getpid()

    def alive(self) -> bool:
        """True when it runs and belongs to this process (not to the one that forked it)."""
        return self.owner == os.getpid() and self._process.poll() is None

    def fork_worker(self) -> WorkerHandle:
        """A fresh worker, ready for rows."""
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._sock, [b"F"], [theirs.fileno()])
            theirs.close()
            ours.settimeout(_START_TIMEOUT)
            hello = wire.receive(ours, wire.FrameReader())
        except OSError as error:
            ours.close()
            raise WorkerLost(f"no worker from the template process: {error}") from error
        if not hello:
            ours.close()
            raise WorkerLost(f"the template process ended with {self._process.poll()}")
        ours.settimeout(None)
        return WorkerHandle(ours, hello[0]["pid"])

    def close(self) -> None:
        """End of file ends the template, and with it its workers."""
        if self.owner == os.getpid():
            self._sock.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
                return
            self._process.kill()
            self._process.wait()


_lock = threading.Lock()
_template: Template | None = None


def spawn() -> WorkerHandle:
    """A worker from this process's template, which is started when there is none."""
    global _template
    with _lock:
        for attempt in (1, 2):
            if _template is None or not _template.alive():
                _template = Template()
                atexit.register(_template.close)
            try:
                return _template.fork_worker()
            except WorkerLost:
                _template.close()
                _template = None
                if attempt == 2:
                    raise
    raise AssertionError("unreachable")
