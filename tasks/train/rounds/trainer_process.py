"""The trainer as a child process: started when there is work, started again when it dies.

Invariants: it is driven by files alone (`tasks.train.trainer`), so killing it loses at most the
step at hand; it ends with the process that owns it, and no rank outlives its launcher for long; a
start that makes no progress is repeated a few times, then the run stops with the trainer's last
words.
"""

import os
import subprocess
import sys
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from infra.computing import computing_environment
from infra.reaper import end_marked
from tasks.train.rounds.errors import TrainerFailed
from tasks.train.trainer import weights_path

MAX_TRIES = 3
LAST_WORDS = 2000
STOP_SECONDS = 5.0
MARK = "TRACEMILL_TRAINER_MARK"
"""Variable by which ranks are found: torchrun starts each in a session of its own."""


class TrainerResources(BaseModel):
    """Where the trainer runs. Resources only, but for the bits of floating-point sums."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    processes: int = Field(
        1, ge=1, le=512, description="Ranks; above 1 torchrun starts them and FSDP2 shards."
    )
    threads: int = Field(1, ge=1, le=256, description="Threads of each rank.")


class TrainerProcess:
    """The trainer of one run directory, up to policy version `until`."""

    def __init__(self, run_dir: Path, until: int, resources: TrainerResources) -> None:
        self._run_dir = run_dir
        self._until = until
        self._resources = resources
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = uuid.uuid4().hex
        self._tries = 0
        self._log = run_dir / "trainer.log"
        self._awaited = (-1, "")
        """The version that is asked for, often, and where its weights will be."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        end_marked(MARK, self._mark)

    @property
    def pid(self) -> int | None:
        """The process id while it lives."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def done(self, version: int) -> bool:
        """Whether the weights of a policy version are there; a trainer that died is revived."""
        if self._awaited[0] != version:
            self._awaited = version, str(weights_path(self._run_dir, version))
        if os.path.isdir(self._awaited[1]):
            self._tries = 0
            return True
        if self.pid is None:
            self._tries += 1
            if self._tries >= MAX_TRIES:
                raise TrainerFailed(version, self._tries, self._last_words())
            self._start()
        return False

    def _start(self) -> None:
        end_marked(MARK, self._mark)  # ranks of a launcher that was killed
        module = ["tasks.train.trainer.main", str(self._run_dir)]
        command = [sys.executable, "-m"]
        if self._resources.processes > 1:
            ranks = f"--nproc-per-node={self._resources.processes}"
            command += ["torch.distributed.run", "--standalone", ranks, "-m"]
        command += [*module, "--until", str(self._until), "--owner", str(os.getpid())]
        env = computing_environment(self._resources.threads) | {MARK: self._mark}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                # A Ctrl-C in the terminal is the flow's to handle.
                start_new_session=True,
            )

    def _last_words(self) -> str:
        data = self._log.read_bytes() if self._log.exists() else b""
        return data[-LAST_WORDS:].decode("utf-8", "replace").strip()
