"""Runs a task that is the process itself, until the pool says otherwise.

Its state is reported under the original's names. A process that fails is started again after a
pause that doubles; one that ends with 0 is done. Figures and files come over the bridge.
"""

import contextlib
import hashlib
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO

from infra.pool.agent.bridge import Bridge
from infra.pool.agent.launch import Launch
from infra.pool.agent.shards import Place
from infra.pool.agent.uploads import upload
from infra.pool.agent.worker import remove_container
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError
from infra.pool.wire import Assignment, Metric, TaskDetails, TaskState

log = logging.getLogger("tracemill.agent")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
LASTING = 300.0
"""Seconds after which a process counts as one that had started well."""
MAX_LOG_BYTES = 256 << 20
"""A log that has become larger keeps its last quarter: a task may not fill its node's disk."""
LOG_LOOK = 1.0
STOP_SECONDS = 15.0
JOIN_SECONDS = 5.0


class StandingRunner:
    """One task in one place of one group."""

    def __init__(
        self,
        client: PoolClient,
        place: Place,
        task: Assignment,
        launch: Launch,
        changed: Callable[[], None],
    ):
        self.place = place
        self.state: TaskState = "PENDING"
        self._client, self._task, self._launch, self._changed = client, task, launch, changed
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0
        self._exit_code: int | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._ended = threading.Event()
        self._bridge = Bridge(launch.socket, task.id, launch.data, self._upload)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether the process runs."""
        return self.state == "RUNNING"

    def details(self) -> TaskDetails:
        """The container, or the process under the same names."""
        return TaskDetails(
            docker_image_id=self._task.image[:200],
            container_id=self._launch.container
            or (str(self._process.pid) if self._process else ""),
            container_status=self.state.lower(),
            container_created_at=self._started_at or None,
            container_exit_code=self._exit_code,
        )

    def metrics(self) -> list[Metric]:
        """What the task reported."""
        return self._bridge.metrics()

    def logs(self, most: int) -> str:
        """The end of what the process wrote."""
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, most, max(0, size - most)).decode("utf-8", "replace")

    def close(self) -> None:
        """End the process and everything that it started."""
        self._ended.set()
        self._stop()
        # It may be waiting for a service that does not answer.
        self._thread.join(JOIN_SECONDS)
        self._bridge.close()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._ended.is_set():
            started = time.monotonic()
            self._exit_code = self._once()
            if self._ended.is_set():
                return
            if self._exit_code == 0:
                self._say("COMPLETED")
                return
            self._say("FAILED")
            if time.monotonic() - started > LASTING:
                pause = FIRST_PAUSE
            if self._ended.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE)
            # Where only the client of docker ended, the next one would find the name taken.
            self._remove()
            self._say("RESTARTING")

    def _once(self) -> int:
        try:
            self._process = subprocess.Popen(
                list(self._launch.command),
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                env=dict(self._launch.env),
                start_new_session=True,
            )
        except OSError as error:
            log.error("task %s does not start: %s", self._task.name, error)
            return 127
        if self._ended.is_set():
            self._stop()
        self._started_at = int(time.time())
        self._say("RUNNING")
        while True:
            try:
                return self._process.wait(LOG_LOOK)
            except subprocess.TimeoutExpired:
                self._bound_log()

    def _bound_log(self) -> None:
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        if size > MAX_LOG_BYTES:
            end = os.pread(descriptor, MAX_LOG_BYTES // 4, size - MAX_LOG_BYTES // 4)
            # The process writes on at the offset that its descriptor shares with ours.
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, end)

    def _say(self, state: TaskState) -> None:
        self.state = state
        self._changed()

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._remove()

    def _remove(self) -> None:
        if self._launch.container:
            remove_container(self._launch.command[0], self._launch.container)

    def _upload(self, data: bytes, name: str) -> None:
        try:
            # A node may give a name once for the same bytes only.
            unique = f"{hashlib.sha256(data).hexdigest()[:8]}-{name}"
            upload(self._client, data, unique, self._task.id)
        except PoolError as error:
            log.warning("task %s: %s was not uploaded: %s", self._task.name, name, error)
