"""Running programs: warm sandboxes are leased, reused while clean, and replaced.

A sandbox serves many programs, one at a time: its fork server never reads a job, each
program is a fresh fork of it, and the scratch directory is emptied in between. One that
broke, or that holds leftovers, is thrown away.
"""

import fcntl
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verifiers import progress
from verifiers.errors import SandboxBroken, SandboxUnavailable
from verifiers.sandbox import seccomp
from verifiers.sandbox.cage import Cage, Ended, Limits
from verifiers.sandbox.profile import PLAIN, Profile, bwrap_path

MAX_TESTS = 2000
_TRIAL = "import colorsys\nprint(6 * 7)"  # a module that the fork server has not loaded
_idle: dict[str, list[Cage]] = {}
_owner = os.getpid()
_works = False
_lock = threading.Lock()
_local = threading.local()


def _take(kind: Profile) -> Cage | None:
    global _owner
    with _lock:
        if _owner != os.getpid():  # cages belong to the process that started them
            _idle.clear()
            _owner = os.getpid()
        cages = _idle.setdefault(kind.name, [])
        return cages.pop() if cages else None


def _put(cage: Cage) -> None:
    if not cage.clean or cage.tests >= MAX_TESTS:
        cage.close()
        return
    with _lock:
        _idle.setdefault(cage.kind.name, []).append(cage)


@contextmanager
def _quiet(alone: bool) -> Iterator[None]:
    """Programs run side by side; one that is `alone` waits for the others and holds them off.

    Two files: who wants to be alone keeps the gate while waiting, so that no new ones come.
    """
    gate, room = _lock_files()
    try:
        _flock(gate, fcntl.LOCK_EX)
        if not alone:
            fcntl.flock(gate, fcntl.LOCK_UN)
        _flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        fcntl.flock(room, fcntl.LOCK_UN)
        fcntl.flock(gate, fcntl.LOCK_UN)


def _lock_files() -> tuple[Any, Any]:
    """The two files, open once per thread (a lock belongs to an opening of the file)."""
    held: tuple[int, Any, Any] | None = getattr(_local, "locks", None)
    if held is not None and held[0] == os.getpid():
        return held[1], held[2]
    directory = Path(tempfile.gettempdir()) / f"tracemill-sandbox-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid() or directory.is_symlink():
        raise SandboxBroken(f"{directory} belongs to somebody else; remove it")
    gate, room = open(directory / "gate", "w"), open(directory / "room", "w")
    _local.locks = (os.getpid(), gate, room)
    return gate, room


def _flock(file: Any, how: int) -> None:
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            progress.report(progress.ANSWER)  # waiting for another program is no hang
            threading.Event().wait(0.05)


def run_job(kind: Profile, job: dict[str, object], stdin: bytes, limits: Limits) -> Ended:
    """Run one job, twice when the sandbox breaks or the machine starves it."""
    reason = availability()[1]
    if reason:
        raise SandboxUnavailable(reason)
    ended = _attempt(kind, job, stdin, limits, alone=False)
    if ended.starved:
        ended = _attempt(kind, job, stdin, limits, alone=True)
    return ended


def _attempt(
    kind: Profile, job: dict[str, object], stdin: bytes, limits: Limits, alone: bool
) -> Ended:
    with _quiet(alone):
        for last in (False, True):
            progress.report(progress.ANSWER)
            try:
                cage = _take(kind) or Cage(kind)
                ended = cage.run(job, stdin, limits, patient=alone)
            except SandboxBroken:
                if last:
                    raise
                continue
            _put(cage)
            return ended
    raise AssertionError("unreachable")


def new_nonce() -> str:
    """A word that no program can guess beforehand."""
    return secrets.token_hex(16)


def run_program(
    source: str, *, stdin: str = "", limits: Limits | None = None, kind: Profile = PLAIN
) -> Ended:
    """Run a Python program as `__main__` in the sandbox."""
    data = stdin.encode("utf-8", "surrogatepass")
    return run_job(kind, {"mode": "program", "source": source}, data, limits or Limits())


def close_idle() -> None:
    """End the warm sandboxes of this process."""
    with _lock:
        cages = [cage for held in _idle.values() for cage in held] if _owner == os.getpid() else []
        _idle.clear()
    for cage in cages:
        cage.close()


def availability() -> tuple[bool, str]:
    """Whether untrusted programs can run here, and why not; only a success is remembered."""
    global _works
    if not _works:
        _works, why = _trial()
        return _works, why
    return True, ""


def _trial() -> tuple[bool, str]:
    if not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
        return False, "the sandbox needs Linux"
    try:
        bwrap_path()
        if problem := seccomp.missing():
            return False, problem
        cage = Cage(PLAIN)
        ended = cage.run({"mode": "program", "source": _TRIAL}, b"", Limits())
    except (SandboxUnavailable, SandboxBroken) as error:
        return False, f"no sandbox on this machine: {error}"
    if ended.stdout != b"42\n":
        cage.close()
        return False, f"a trial program failed in the sandbox: {ended.stderr[-300:]!r}"
    _put(cage)
    return True, ""
