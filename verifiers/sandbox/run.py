"""Running programs: warm sandboxes are leased, reused while clean, and replaced.

A sandbox serves many programs, one at a time: its fork server never reads a job, each
program is a fresh fork of it, and the scratch directory is emptied in between. One that
broke, or that holds leftovers, is thrown away.
"""

import fcntl
import logging
import os
import secrets
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verifiers import progress
from verifiers.errors import SandboxBroken, SandboxUnavailable
from verifiers.sandbox import seccomp, weak
from verifiers.sandbox.cage import Cage, Ended, Limits
from verifiers.sandbox.profile import PLAIN, Profile

logger = logging.getLogger(__name__)

MAX_TESTS = 2000
_TRIAL = """
import colorsys, threading  # the first is a module that the fork server has not loaded
go = threading.Event()
threads = 0
try:
    while threads < 40:
        threading.Thread(target=go.wait).start()
        threads += 1
except RuntimeError:
    pass
go.set()
print(threads)
"""
_idle: dict[str, list[Cage]] = {}
_owner = os.getpid()
_in_bubblewrap: bool | None = None
"""How sandboxes are made here; None until a trial worked."""
_lock = threading.Lock()
_local = threading.local()


def _take(kind: Profile) -> Cage | None:
    global _owner
    with _lock:
        if _owner != os.getpid():  # cages belong to the process that started them
            _idle.clear()
            _owner = os.getpid()
        cages = _idle.setdefault(kind.name, [])
        while cages:
            cage = cages.pop()
            if cage.alive():
                return cage
            cage.close()
        return None


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
        progress.report(progress.ANSWER)
        try:
            return _run(_take(kind) or _cage(kind), job, stdin, limits, alone)
        except SandboxBroken:
            progress.report(progress.ANSWER)
        try:
            return _run(_cage(kind), job, stdin, limits, alone)
        except SandboxBroken as error:
            # Chance, twice, or the program's doing? A harmless program tells.
            progress.report(progress.ANSWER)
            if problem := _trial(in_bubblewrap()):
                raise SandboxBroken(problem) from error
            said = f"the sandbox broke under this program, twice: {error}".encode()
            return Ended(-signal.SIGKILL, b"", said, b"", 0.0, 0.0, False, False, False)


def _run(cage: Cage, job: dict[str, object], stdin: bytes, limits: Limits, patient: bool) -> Ended:
    ended = cage.run(job, stdin, limits, patient=patient)
    _put(cage)
    return ended


def _cage(kind: Profile) -> Cage:
    return Cage(kind, in_bubblewrap=in_bubblewrap())


def in_bubblewrap() -> bool:
    """How sandboxes are made here, once `availability` was asked."""
    return _in_bubblewrap is not False


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
    """Whether untrusted programs can run here, and why not; only a success is remembered.

    Where bubblewrap does not work they are refused, unless the worker's environment allows the
    weak sandbox (`verifiers.sandbox.weak`).
    """
    global _in_bubblewrap
    if _in_bubblewrap is not None:
        return True, ""
    problem = _trial(True)
    if not problem:
        _in_bubblewrap = True
        return True, ""
    if not weak.allowed():
        return False, (
            f"{problem}. Untrusted programs are not run here; on a machine that holds nothing of "
            f"value, {weak.VARIABLE}=1 in the worker's environment allows a weaker sandbox"
        )
    if other := _trial(False):
        return False, f"{problem}; nor does the weak sandbox work: {other}"
    logger.warning(
        "UNTRUSTED PROGRAMS RUN IN A WEAK SANDBOX, without namespaces (%s), because %s=1 is set: "
        "no limit on disk in total, and without root none on threads and no user of its own",
        problem,
        weak.VARIABLE,
    )
    _in_bubblewrap = False
    return True, ""


def _trial(in_bubblewrap: bool) -> str:
    """Run a harmless program: why it does not work, empty when it does."""
    if not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
        return "the sandbox needs Linux"
    if problem := seccomp.missing():
        return problem
    try:
        cage = Cage(PLAIN, in_bubblewrap=in_bubblewrap)
        ended = cage.run({"mode": "program", "source": _TRIAL}, b"", Limits())
    except (SandboxUnavailable, SandboxBroken) as error:
        return f"no sandbox on this machine: {error}"
    threads = int(ended.stdout) if ended.stdout.strip().isdigit() else 0
    if not threads or (threads != Limits().threads and in_bubblewrap):
        cage.close()
        return (
            f"a trial program failed in the sandbox: {threads} threads, {Limits().threads} are "
            f"allowed; {ended.stderr[-300:]!r}"
        )
    _put(cage)
    return ""
