"""A loaded environment: one sandboxed process that knows the rows and forks for each episode.

Invariants: an environment that hangs, dies, floods or lies costs EnvironmentBroken within the
limits here and nothing else; after `close` nothing of it is left; an episode that is closed early
is killed alone; all processes of one environment together stay below TOTAL_BYTES (apart from what
can be taken between two looks).
"""

import itertools
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verifiers.environments.episode import Episode
from verifiers.environments.line import Line
from verifiers.errors import EnvironmentBroken
from verifiers.sandbox import Limits, procfs, start_script

GUEST = Path(__file__).with_name("guest.py")
LOAD_SECONDS = 1800.0
"""Wall time of `load_environment` with its imports: 8 s of CPU, on a busy machine far more."""
REPLY_SECONDS = 60.0
"""Wall time of an answer about the dataset."""
KILL_SECONDS = 10.0
LIMITS = Limits(cpu_seconds=300, memory_bytes=6 << 30, threads=62)
"""Of each process; the threads are those of all processes together."""
EPISODE_CPU_SECONDS = 60
TOTAL_BYTES = 8 << 30
_LOOK_SECONDS = 0.25
ROWS_AT_ONCE = 200


class EnvironmentProcess:
    """`load_environment(**args)` of the module that `environment` names, by its interpreter."""

    def __init__(self, python: Path, environment: str, args: Mapping[str, Any] | None = None):
        self.name = environment
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._tree = start_script(python, GUEST, limits=LIMITS, forks=True)
        self._line = Line(self._tree.control)
        self._closed = threading.Event()
        self._too_big = False
        threading.Thread(target=self._watch, daemon=True).start()
        request = {
            "environment": environment,
            "args": dict(args or {}),
            "episode_limits": {"RLIMIT_CPU": EPISODE_CPU_SECONDS},
        }
        about = self._ask(request, LOAD_SECONDS, "loaded")
        self.row_count = _natural(about, "rows")
        self.single_turn = about.get("single_turn") is True
        self.compares_groups = about.get("compares_groups") is True

    def rows(self, start: int = 0, count: int = ROWS_AT_ONCE) -> list[dict[str, Any]]:
        """Rows of the environment's dataset: `prompt` (messages), `answer`, `info` and the rest."""
        wanted = {"start": start, "count": min(count, ROWS_AT_ONCE)}
        found = self._ask({"rows": wanted}, REPLY_SECONDS, "rows", whole=True)
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise self._broken("its rows are no list of objects")
        return found

    def episode(self, row: Mapping[str, Any]) -> Episode:
        """A conversation about a row, in a process of its own."""
        if self.compares_groups:
            raise EnvironmentBroken(
                f"environment {self.name}: a reward function compares the answers of a group; "
                "rows are scored one at a time here"
            )
        ours, theirs = socket.socketpair()
        number = next(self._numbers)
        try:
            with self._lock:
                self._line.send({"episode": number}, REPLY_SECONDS, theirs.fileno())
        except EnvironmentBroken as error:
            ours.close()
            raise self._broken(str(error)) from error
        finally:
            theirs.close()
        return Episode(Line(ours), row, lambda: self._kill(number))

    @property
    def alive(self) -> bool:
        """Whether another episode may be asked for."""
        return not self._closed.is_set() and self._tree.process.poll() is None

    def close(self) -> None:
        """Kill all of its processes."""
        with self._lock:
            if not self._closed.is_set():
                self._closed.set()
                self._tree.kill()

    def __enter__(self) -> "EnvironmentProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kill(self, number: int) -> None:
        """End one episode; all of them when the environment does not obey."""
        if not self.alive:
            return
        try:
            self._ask({"kill": number}, KILL_SECONDS, "killed", whole=True)
        except EnvironmentBroken:
            self.close()

    def _ask(
        self, message: dict[str, Any], seconds: float, reply: str, *, whole: bool = False
    ) -> Any:
        try:
            with self._lock:
                self._line.send(message, seconds)
                _, value = self._line.receive(seconds, reply)
        except EnvironmentBroken as error:
            raise self._broken(str(error)) from error
        if not whole and not isinstance(value, dict):
            raise self._broken(f"its reply {reply} is no object")
        return value

    def _broken(self, what: str) -> EnvironmentBroken:
        """The error, after the end of the process: what has broken once is not asked again."""
        words = self._tree.errors()[-300:] if not self._closed.is_set() else ""
        self.close()
        if self._too_big:
            what = f"it took more than {TOTAL_BYTES >> 30} GiB of memory"
        return EnvironmentBroken(f"environment {self.name}: {what}{f'; {words}' if words else ''}")

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            if procfs.memory(self._tree.process.pid) > TOTAL_BYTES:
                self._too_big = True
                self._tree.process.kill()  # whoever waits for it hears the end of the line
                return


def _natural(about: Mapping[str, Any], key: str) -> int:
    value = about.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise EnvironmentBroken(f"the environment reports {key} as {value!r:.40}")
    return value
