"""The process that works on shards, and how the agent talks to it.

The child says its node id in a first JSON line on its stdout, then reads one JSON line per shard
from its stdin and answers with one JSON line each: `{"output", "seconds", "files"}`, where files
names what it wrote into the directory `out` of the shard, or `{"error_kind", "error"}`. A line with
`progress` alone, a share, may come before. A child ends when its stdin closes.

Invariant: when `stop` returns, to whichever thread, the container is gone too, so that the next one
can have its name. Ending the client of docker does not end it.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from infra.pool.agent.errors import WorkerDied
from infra.pool.wire import MAX_UPLOAD_BYTES

log = logging.getLogger("tracemill.agent")

MAX_LINE = 4 << 20
"""Bytes of a line that a child says; a result has to fit into a request."""
STOP_SECONDS = 5.0
REMOVE_SECONDS = 60.0
LAST_WORDS = 600


class Worker:
    """One child; not safe to use from several threads, but for `stop` and `last_words`."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], container: str = ""):
        """`container`: the name of the one that the command, a client of docker, starts."""
        self._docker, self._container = command[0], container
        self._removing = threading.Lock()
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(env),
            start_new_session=True,
        )
        threading.Thread(target=self._end_session, daemon=True).start()

    def _end_session(self) -> None:
        """What the child started must not hold its stdout open when it has ended."""
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            # Not reaped before its session is ended: the number would be free for others.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            os.killpg(self._process.pid, signal.SIGKILL)

    def meet(self) -> str:
        """The node id that the child said; it signs with that key."""
        return str(self._line().get("node_id"))

    def ask(self, work: Mapping[str, Any], progress: Callable[[float], None]) -> dict[str, Any]:
        """The child's answer to a shard; WorkerDied when there is none."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(dict(work)).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._died(str(error)) from error
        while set(answer := self._line()) == {"progress"}:
            try:
                progress(float(answer["progress"]))
            except (TypeError, ValueError, OverflowError) as error:
                raise self._died(f"it said that its progress is {error}"[:200]) from error
        return answer

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def last_words(self, most: int = LAST_WORDS) -> str:
        """The end of what the child wrote to stderr."""
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, most, max(0, size - most)).decode("utf-8", "replace").strip()

    def stop(self, patience: float = STOP_SECONDS) -> None:
        """End the child and its session."""
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with self._removing:
            name, self._container = self._container, ""
            if name:
                remove_container(self._docker, name)

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline(MAX_LINE)
        try:
            parsed = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError) as error:
            raise self._died(f"it said {line[:80]!r}") from error
        if not isinstance(parsed, dict):
            raise self._died(f"it said {line[:80]!r}" if line else "it ended")
        return parsed

    def _died(self, why: str) -> WorkerDied:
        return WorkerDied(f"{why}. Its last words: {self.last_words() or '(none)'}")


def remove_container(docker: str, name: str) -> None:
    """End a container, running or not; one that is not there is no fault."""
    try:
        subprocess.run(
            [docker, "rm", "-f", name],
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=REMOVE_SECONDS,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError) as error:
        log.warning("container %s was not removed: %s", name, error)


def files_of(answer: Mapping[str, Any], out: Path) -> list[Path]:
    """The files that an answer names, which must lie in the shard's own directory.

    For an error that says what is wrong; `uploads.read_below` reads safely.
    """
    names = answer.get("files", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WorkerDied(f"it answered with files {str(names)[:80]!r}, not a list of names")
    found = [out / name for name in names]
    for name, path in zip(names, found, strict=True):
        if path.name != name or path.is_symlink() or not path.is_file():
            raise WorkerDied(f"it named the file {name[:200]!r}, which is not one in {out}")
        size = path.stat().st_size
        if size > MAX_UPLOAD_BYTES:
            raise WorkerDied(
                f"its file {path.name[:100]!r} has {size} bytes; allowed are {MAX_UPLOAD_BYTES}"
            )
    return found
