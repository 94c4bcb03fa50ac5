"""Starting a guest and killing it with everything below.

Invariant: after `Tree.kill` no process of the guest is left and its user id is free again.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from typing import IO

from verifiers.errors import SandboxBroken
from verifiers.sandbox import procfs, profile, seccomp, slots, weak

_END_SECONDS = 5.0


def memfd(name: str, content: bytes) -> int:
    """An anonymous file that can be read and nothing else."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@dataclass(frozen=True)
class Start:
    """What a guest is to be: a fork server with a control socket, or one script."""

    mounts: profile.Mounts = ()
    python: str = field(default_factory=profile.python_path)
    preload: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    forks: bool = False


class Tree:
    """A guest and the processes around and below it. With a script, `stdin` and `stdout` are its
    pipes; without, `control` is the fork server's socket.
    """

    def __init__(self, start: Start, *, in_bubblewrap: bool):
        self.slot = slots.lease() if os.geteuid() == 0 else None
        self._scratch: weak.Scratch | None = None
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        self.control, theirs = socket.socketpair()
        settings = -1
        try:
            uid = self.slot.uid if self.slot else -1
            if not in_bubblewrap:
                self._scratch = weak.Scratch(start.mounts, uid)
            settings = memfd("settings", self._settings(start, uid, theirs.fileno()))
            guest = [start.python, *profile.FLAGS, str(settings)]
            pipe = subprocess.PIPE if start.script else subprocess.DEVNULL
            before = profile.bubblewrap(start.mounts, uid) if in_bubblewrap else []
            self.process = subprocess.Popen(
                [*before, *guest],
                pass_fds=(theirs.fileno(), settings),
                stdin=pipe,
                stdout=pipe,
                stderr=self._errors,
                env={} if self._scratch is None else self._scratch.environment(),
                cwd="/",
                start_new_session=not in_bubblewrap,  # a process group to kill; bwrap has its own
            )
        except OSError as error:
            self._release()
            raise SandboxBroken(f"the sandbox does not start: {error}") from error
        except BaseException:
            self._release()
            raise
        finally:
            theirs.close()
            if settings >= 0:
                os.close(settings)

    def _settings(self, start: Start, uid: int, control: int) -> bytes:
        guest_filter, program_filter = seccomp.programs(self._scratch is None)
        scratch = self._scratch
        packages = any(path.startswith(profile.PACKAGES) for _, path in start.mounts)
        where = str(scratch.packages) if scratch else profile.PACKAGES
        values = {
            "uid": uid,
            "owner": os.getpid() if scratch else 0,
            "scratch": str(scratch.tmp) if scratch else profile.SCRATCH,
            "files": scratch.rules() if scratch else None,
            "packages": where if packages else "",
            "preload": start.preload,
            "placeholder": seccomp.OWN_PID,
            "guest_filter": guest_filter.hex(),
            "program_filter": program_filter.hex(),
            "control": control,
            "script": start.script,
            "limits": start.limits,
            "forks": start.forks,
        }
        return json.dumps(values).encode("ascii")

    @property
    def stdin(self) -> IO[bytes]:
        """Of the script."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """Of the script."""
        assert self.process.stdout is not None
        return self.process.stdout

    def errors(self) -> str:
        """The end of what was written to standard error."""
        size = os.fstat(self._errors).st_size
        return os.pread(self._errors, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()

    def kill(self) -> None:
        """Kill everything inside and wait until it is gone."""
        below = []
        for pid in procfs.children(self.process.pid):  # with bubblewrap: the namespace's init
            with contextlib.suppress(OSError):
                below.append(os.pidfd_open(pid))
        if self.process.poll() is None:
            if self._scratch is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()  # --die-with-parent takes the rest of the tree along
        self.process.wait()
        for fd in below:
            select.select([fd], [], [], _END_SECONDS)
            os.close(fd)
        self._release()

    def _release(self) -> None:
        self.control.close()
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1
        if self._scratch is not None:
            self._scratch.remove()
        if self.slot is not None:
            self.slot.release()
            self.slot = None
