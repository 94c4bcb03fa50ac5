"""Atomic writes on a local file system.

Invariants: a reader sees the whole object or none; an object created without `overwrite` is never
replaced, also when two processes create it at once (`os.link` fails for the second one). What a
killed writer leaves has the temporary prefix, is invisible to listings, and goes away when
somebody writes into that directory after `STALE_SECONDS`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMP_PREFIX = ".tmp-"
STALE_SECONDS = 3600.0
"""Far longer than one write takes: a younger file may belong to a living writer."""


def write_atomic(target: Path, data: bytes, *, overwrite: bool) -> None:
    """Create or replace `target`; FileExistsError if it is there and `overwrite` is false."""
    directory = target.parent
    directory.mkdir(parents=True, exist_ok=True)
    _remove_stale(directory)
    temp = directory / f"{TEMP_PREFIX}{target.name[:100]}-{os.getpid()}-{secrets.token_hex(6)}"
    try:
        with open(temp, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(temp, target)
        else:
            os.link(temp, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temp)
    fsync_path(directory)


@contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold the directory against other processes; the kernel frees it when the holder dies."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def list_files(directory: Path) -> Iterator[Path]:
    """All files below, without temporary ones; links to directories are not followed."""
    for parent, folders, names in os.walk(directory):
        folders.sort()
        for name in names:
            if not name.startswith(TEMP_PREFIX):
                yield Path(parent) / name


def _remove_stale(directory: Path) -> None:
    limit = time.time() - STALE_SECONDS
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(TEMP_PREFIX):
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < limit:
                        os.unlink(entry.path)


def fsync_path(path: Path) -> None:
    """Make a file's bytes last, or the renames and new names in a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
