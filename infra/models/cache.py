"""The user's model cache: directories that are built once and never changed.

Invariants: a directory appears under its name only when it is complete (built beside it, synced,
renamed); a lock file makes a second process wait instead of building the same thing; what a
killed build left behind is removed by the next one.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.storage.local import fsync_path


def cache_root() -> Path:
    """`$TRACEMILL_CACHE/models`, or `~/.cache/tracemill/models`."""
    given = os.environ.get("TRACEMILL_CACHE")
    base = Path(given) if given else Path.home() / ".cache" / "tracemill"
    return base / "models"


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The cached directory `name`; `build` fills an empty directory if there is none yet."""
    target = cache_root() / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / f".{name}.lock"):
        if target.is_dir():
            return target
        for left in target.parent.glob(f".{name}.building-*"):
            shutil.rmtree(left, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix=f".{name}.building-", dir=target.parent))
        try:
            build(building)
            _sync(building)
            building.chmod(0o755)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        fsync_path(target.parent)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the system drops it when the process ends, however it ends."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sync(directory: Path) -> None:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            fsync_path(path)
    fsync_path(directory)
