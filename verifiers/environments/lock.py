"""Lock files: the wheels of an environment and of all that it needs, each with its sha256.

One line a wheel, as pip reads it: `name==version --hash=sha256:<64 hex digits>`. Nothing else may
stand in a lock: no options, no addresses, no markers. A lock is for one platform and one Python.
"""

import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verifiers.errors import BadLock, InstallFailed

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)"
    r" --hash=sha256:(?P<hash>[0-9a-f]{64})"
)
_PIP_SECONDS = 3600
MAX_WHEELS = 2000


@dataclass(frozen=True)
class Lock:
    """Sorted lines of a lock file; equal locks have equal digests."""

    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """What pip reads."""
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def digest(self) -> str:
        """sha256 of the text, 64 hex digits: the identity of the environment."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_lock(text: str) -> Lock:
    """The lock in a text; comments and empty lines are dropped."""
    lines, names = [], set()
    for number, raw in enumerate(text.split("\n"), 1):
        line = " ".join(raw.split())
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadLock(
                f"line {number} of the lock is {line[:80]!r}; allowed is only "
                "name==version --hash=sha256:<64 hex digits>. Make the lock with "
                "`python -m verifiers.environments lock`"
            )
        name = re.sub(r"[-_.]+", "-", match["name"]).lower()
        if name in names:
            raise BadLock(f"line {number} of the lock names {name} a second time; keep one of them")
        names.add(name)
        lines.append(f"{name}=={match['version']} --hash=sha256:{match['hash']}")
    if not lines or len(lines) > MAX_WHEELS:
        raise BadLock(f"the lock names {len(lines)} wheels; allowed are 1 to {MAX_WHEELS}")
    return Lock(tuple(sorted(lines)))


def make_lock(requirements: Sequence[str], wheels: Sequence[Path] = ()) -> Lock:
    """Resolve requirements and everything below them to wheels; nothing is built or run.

    `wheels` are directories with wheels that are on no index. InstallFailed says what pip said.
    """
    for requirement in requirements:
        if requirement.startswith("-"):
            raise BadLock(f"{requirement!r} is an option of pip, not a requirement: name==version")
    with tempfile.TemporaryDirectory(prefix="tracemill-lock-") as directory:
        python = bare_python(Path(directory) / "venv")
        report = Path(directory) / "report.json"
        links = [word for path in wheels for word in ("--find-links", str(path.resolve()))]
        options = ["--dry-run", "--ignore-installed", "--only-binary", ":all:", *links]
        run_pip(python, ["install", *options, "--report", str(report), *requirements])
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
        return read_lock("\n".join(_line(item) for item in found))


def _line(item: dict[str, dict[str, dict[str, dict[str, str]]]]) -> str:
    metadata, where = item["metadata"], item["download_info"]
    hashes = where.get("archive_info", {}).get("hashes", {})
    if "sha256" not in hashes:
        raise InstallFailed(f"the index gives no sha256 for {metadata['name']}; use another index")
    return f"{metadata['name']}=={metadata['version']} --hash=sha256:{hashes['sha256']}"


def bare_python(directory: Path) -> Path:
    """The interpreter of a new virtual environment, with nothing in it."""
    venv.create(directory, symlinks=True)
    return directory / "bin" / "python"


def run_pip(python: Path, arguments: Sequence[str]) -> None:
    """Run our pip for a virtual environment; its index settings are those of the user."""
    if importlib.util.find_spec("pip") is None:
        raise InstallFailed(f"{sys.executable} has no pip; add it: python -m ensurepip")
    command = [sys.executable, "-P", "-m", "pip", "--python", str(python)]
    pip = subprocess.Popen(
        [*command, "--disable-pip-version-check", "--no-input", "--quiet", *arguments],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # pip starts itself again under the other interpreter
    )
    try:
        _, errors = pip.communicate(timeout=_PIP_SECONDS)
    except BaseException as error:
        os.killpg(pip.pid, signal.SIGKILL)
        pip.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise InstallFailed(
                f"pip {arguments[0]} took more than {_PIP_SECONDS} s; "
                "try again on a quieter machine"
            ) from None
        raise
    if pip.returncode != 0:
        words = errors.decode("utf-8", "replace").strip().splitlines()[-4:]
        raise InstallFailed(f"pip {arguments[0]} failed: {' | '.join(words)[:600]}")
