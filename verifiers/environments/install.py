"""Virtual environments of locks, in a cache by the hash of the lock.

Only the operator installs; a row can name what is installed and nothing else. Invariants: pip
takes binary wheels with the hashes of the lock and nothing besides, so nothing of a wheel runs
while it is installed; a directory under its digest is complete; it is never changed again.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from verifiers.environments.lock import Lock, bare_python, run_pip
from verifiers.errors import EnvironmentMissing

_LOCK_FILE = "environment.lock"


def environment_root() -> Path:
    """`$TRACEMILL_CACHE/environments`, or `~/.cache/tracemill/environments`."""
    given = os.environ.get("TRACEMILL_CACHE")
    base = Path(given) if given else Path.home() / ".cache" / "tracemill"
    return base / "environments"


def python_of(digest: str) -> Path:
    """The interpreter of an installed environment; EnvironmentMissing when there is none."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise EnvironmentMissing(f"{digest[:80]!r} is no digest of a lock (64 hex digits)")
    python = environment_root() / digest / "bin" / "python"
    if not python.exists():
        raise EnvironmentMissing(
            f"no environment {digest} below {environment_root()}; install it on this machine: "
            "python -m verifiers.environments install LOCKFILE"
        )
    return python


def install(lock: Lock, wheels: Sequence[Path] = ()) -> Path:
    """The virtual environment of a lock, made when it is not there; gives its interpreter.

    `wheels` are directories with wheels that are on no index. InstallFailed says what pip said.
    """
    root = environment_root()
    root.mkdir(parents=True, exist_ok=True)
    target = root / lock.digest
    with open(root / f".{lock.digest}.lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not target.is_dir():
            for left in root.glob(f".{lock.digest}.building-*"):
                shutil.rmtree(left, ignore_errors=True)
            building = Path(tempfile.mkdtemp(prefix=f".{lock.digest}.building-", dir=root))
            _fill(building, lock, wheels)
            building.chmod(0o755)
            building.rename(target)
    return python_of(lock.digest)


def _fill(directory: Path, lock: Lock, wheels: Sequence[Path]) -> None:
    python = bare_python(directory)
    (directory / _LOCK_FILE).write_text(lock.text, encoding="utf-8")
    links = [word for path in wheels for word in ("--find-links", str(path.resolve()))]
    options = ["--require-hashes", "--only-binary", ":all:", "--no-deps", *links]
    run_pip(python, ["install", *options, "--requirement", str(directory / _LOCK_FILE)])
