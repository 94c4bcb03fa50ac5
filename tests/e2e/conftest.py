"""Real runs of the smoke profile, in processes of their own."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_NETWORK = Path(__file__).with_name("no_network.py")


@dataclass
class Cli:
    """The command line with a Prefect home and a storage root of its own."""

    home: Path
    root: Path
    before: list[str] = field(default_factory=list)
    logs: list[IO[str]] = field(default_factory=list)

    def command(self, *arguments: str) -> list[str]:
        return [*self.before, sys.executable, "-m", "flows.cli", *arguments]

    def environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
        return env | {"PREFECT_HOME": str(self.home), "PREFECT_LOGGING_LEVEL": "WARNING"}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        # Files, not pipes: a child that outlives the command would keep a pipe open.
        self.home.mkdir(exist_ok=True)
        self.logs = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        return subprocess.Popen(
            self.command(*arguments),
            cwd=ROOT,
            env=self.environment(),
            stdout=self.logs[0],
            stderr=self.logs[1],
            text=True,
        )

    def output(self) -> list[str]:
        """What the last command has written to stdout and stderr."""
        for log in self.logs:
            log.seek(0)
        return [log.read() for log in self.logs]

    def __call__(self, *arguments: str, timeout: float = 900) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments)
        code = process.wait(timeout)
        return subprocess.CompletedProcess(process.args, code, *self.output())

    def run(self, run_id: str, *more: str) -> "subprocess.CompletedProcess[str]":
        return self(*self.run_arguments(run_id, *more))

    def run_arguments(self, run_id: str, *more: str) -> list[str]:
        overrides = [f"storage.root={self.root}", "provision.nodes=2", "verify.workers=1", *more]
        sets = [part for override in overrides for part in ("--set", override)]
        return ["run", "--profile", "smoke", "--run-id", run_id, *sets]


@pytest.fixture(scope="session", autouse=True)
def _calibrated(calibrated_here: Path) -> None:
    """Runs validate as on a calibrated machine."""


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory) -> Path:
    """One home for all runs: its database is made once."""
    return tmp_path_factory.mktemp("prefect")


@pytest.fixture
def cli(prefect_home, tmp_path) -> Cli:
    return Cli(prefect_home, tmp_path / "data")


@pytest.fixture(scope="session")
def undisturbed(prefect_home, tmp_path_factory) -> Path:
    """The storage root of run `calm`, made without any network where the kernel allows that."""
    cli = Cli(prefect_home, tmp_path_factory.mktemp("calm"), [sys.executable, str(NO_NETWORK)])
    done = cli.run("calm")
    assert done.returncode == 0, done.stdout + done.stderr
    return cli.root
