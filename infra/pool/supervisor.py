"""Keeps child processes running until it is closed.

A child that ends is started again, after a pause that grows while it keeps ending soon, and after
`MAX_STARTS` such starts not any more. Children run in sessions of their own and see the end of this
process on their stdin, however it came.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
LASTING = 30.0
"""Seconds after which a child counts as one that had started well."""
MAX_STARTS = 6
STOP_SECONDS = 10.0
LAST_WORDS = 2000


@dataclass(frozen=True)
class Command:
    """How a child is started; its output goes to `log`, its stdin stays open."""

    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    said: bytes = b""
    """What it reads first."""


class Supervisor:
    """Some children; start them with `with`."""

    def __init__(self) -> None:
        self._children: list[_Child] = []

    def start(self, command: Callable[[int | None], Command]) -> "_Child":
        """Keep a child running; `command` gets the code that it ended with, None at first."""
        child = _Child(command)
        self._children.append(child)
        child.begin()
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all children, the last one first."""
        for child in reversed(self._children):
            child.end()


class _Child:
    """One child and its thread."""

    def __init__(self, command: Callable[[int | None], Command]):
        self._command = command
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self.given_up = False

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._process.pid if self._process is not None else 0

    def last_words(self) -> str:
        """The end of what it wrote."""
        if self._log is None or not self._log.exists():
            return ""
        return self._log.read_bytes()[-LAST_WORDS:].decode("utf-8", "replace").strip()

    def begin(self) -> None:
        """Start it and its thread."""
        self._start(None)
        self._thread.start()

    def _start(self, code: int | None) -> None:
        command = self._command(code)
        with self._lock:
            if self._ended.is_set():
                return
            self._log = command.log
            with command.log.open("ab") as log:
                self._process = subprocess.Popen(
                    list(command.argv),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=dict(command.env),
                    start_new_session=True,
                )
                assert self._process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.write(command.said)
                    self._process.stdin.flush()

    def _keep(self) -> None:
        pause, starts = FIRST_PAUSE, 1
        while not self._ended.is_set():
            started = time.monotonic()
            assert self._process is not None
            code = self._process.wait()
            if time.monotonic() - started > LASTING:
                pause, starts = FIRST_PAUSE, 0
            if starts >= MAX_STARTS:
                self.given_up = True
                return
            if self._ended.wait(pause):
                return
            pause, starts = min(2 * pause, LONGEST_PAUSE), starts + 1
            self._start(code)

    def end(self) -> None:
        """Ask it to end, then end it."""
        with self._lock:
            self._ended.set()
            process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._thread.join()
