"""One live sandbox: start bubblewrap, run programs in it one by one, bury it.

Invariants: whatever a program does, `run` returns within its wall limit plus a moment;
output is read only up to its cap; when the guest does anything unexpected the whole
process tree is killed and SandboxBroken is raised.
"""

import contextlib
import json
import os
import selectors
import socket
import time
from dataclasses import dataclass, field

from verifiers.errors import SandboxBroken
from verifiers.sandbox import procfs, profile
from verifiers.sandbox.launch import Start, Tree, memfd

CPU_SECONDS = 5
WALL_SECONDS = 15.0
MEMORY_BYTES = 1 << 30
THREADS = 16
OUTPUT_BYTES = 16 << 20
STDERR_BYTES = 64 << 10
_START_SECONDS = 60.0
_DEATH_SECONDS = 5.0
_PATIENCE = 4
"""A patient run ends after this many times the wall limit."""
_NEARLY = 0.9
"""Share of the CPU limit from which a kill counts as the limit's doing (ticks are coarse)."""
FILES = 20_000
"""Files and directories in the scratch directory; the kernel keeps about a kilobyte for each."""
_LOOK_SECONDS = 0.2
"""Time between two looks at the number of files."""


@dataclass(frozen=True)
class Limits:
    """What one program may use."""

    cpu_seconds: int = CPU_SECONDS
    wall_seconds: float = WALL_SECONDS
    memory_bytes: int = MEMORY_BYTES
    threads: int = THREADS
    output_bytes: int = OUTPUT_BYTES

    def rlimits(self, processes_beside: int | None) -> dict[str, int]:
        """Kernel limits of the program's process, by name. `processes_beside` are others of its
        user id; None where it is shared with who knows what: then threads have no limit.
        """
        limits = {
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_FSIZE": profile.SCRATCH_BYTES,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_SIGPENDING": 64,
        }
        if processes_beside is not None:
            limits["RLIMIT_NPROC"] = processes_beside + 1 + self.threads
        return limits


@dataclass(frozen=True)
class Ended:
    """How a program ended, as seen from outside of it."""

    exit_code: int
    """Negative: the signal that killed it."""
    stdout: bytes
    stderr: bytes
    result: bytes
    cpu_seconds: float
    wall_seconds: float
    out_of_time: bool
    out_of_output: bool
    """It passed the limit of output, or of files."""
    starved: bool
    """It ran out of wall time because the machine gave it no CPU."""


@dataclass
class _Pipe:
    """The reading end of one stream of the program."""

    fd: int
    cap: int
    data: bytearray = field(default_factory=bytearray)
    open: bool = True

    def read(self) -> bool:
        """Take what is there; False when the cap is passed."""
        chunk = os.read(self.fd, 1 << 16)
        if not chunk:
            self.open = False
            return True
        self.data += chunk[: self.cap + 1 - len(self.data)]
        return len(self.data) <= self.cap


class Cage:
    """A sandbox with its fork server."""

    def __init__(self, kind: profile.Profile, *, in_bubblewrap: bool = True):
        self.kind = kind
        self.tests = 0
        self.clean = True
        start = Start(profile.package_mounts(kind), preload=kind.preload)
        self._tree = Tree(start, in_bubblewrap=in_bubblewrap)
        self._control, self._buffer = self._tree.control, b""
        self._beside: int | None = None
        if self._tree.slot is not None:
            self._beside = 1  # the fork server
        elif in_bubblewrap:
            self._beside = 2  # and bubblewrap's init, counted within the user namespace
        self._scratch = -1
        try:
            if not self._receive(time.monotonic() + _START_SECONDS).get("ready"):
                raise SandboxBroken("the guest did not say that it is ready")
        except SandboxBroken as error:
            said = self._tree.errors()
            self.close()
            raise SandboxBroken(f"{error} {said}".strip()) from error
        if in_bubblewrap:
            self._scratch = procfs.directory_of(self._tree.process.pid, profile.SCRATCH)

    def alive(self) -> bool:
        """False when it died meanwhile, as with the thread that started it."""
        return self._tree.process.poll() is None

    def run(
        self, job: dict[str, object], stdin: bytes, limits: Limits, *, patient: bool = False
    ) -> Ended:
        """Run one program to its end; the sandbox is of no use after SandboxBroken.

        A patient run does not count the time that the program waited for a CPU.
        """
        job = {**job, "limits": limits.rlimits(self._beside)}
        self.tests += 1
        streams: list[_Pipe] = []
        theirs = [memfd("job", json.dumps(job).encode("ascii")), memfd("stdin", stdin)]
        try:
            for cap in (limits.output_bytes, STDERR_BYTES, limits.output_bytes):
                reading, writing = os.pipe2(os.O_CLOEXEC)
                streams.append(_Pipe(reading, cap))
                theirs.append(writing)
            try:
                socket.send_fds(self._control, [b"R"], theirs)
            except OSError as error:
                raise SandboxBroken(f"the guest is gone: {error}") from error
            finally:
                for fd in theirs:
                    os.close(fd)
            return self._supervise(streams, limits, patient)
        except SandboxBroken:
            self.close()
            raise
        finally:
            for stream in streams:
                os.close(stream.fd)

    def _supervise(self, streams: list[_Pipe], limits: Limits, patient: bool) -> Ended:
        started = time.monotonic()
        deadline = started + limits.wall_seconds
        out_of_time = out_of_output = starved = killed = False
        ended: dict[str, object] | None = None
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                selector.register(stream.fd, selectors.EVENT_READ, stream)
            selector.register(self._control, selectors.EVENT_READ, None)
            while ended is None or any(stream.open for stream in streams):
                left = max(0.0, deadline - time.monotonic())
                events = selector.select(min(left, _LOOK_SECONDS))
                if not (events or killed or ended) and self._too_many_files():
                    out_of_output = killed = True
                    deadline = time.monotonic() + _DEATH_SECONDS
                    self._kill_program()
                dying = killed or ended is not None
                if time.monotonic() >= deadline and not (events and dying):
                    if dying:
                        raise SandboxBroken("the program did not die when killed")
                    if patient and (more := self._owed(started, limits)) > 0:
                        deadline += more
                        continue
                    out_of_time = killed = True
                    # A patient run got its waiting back, unless there was no end of it.
                    starved = (
                        time.monotonic() - started >= _PATIENCE * limits.wall_seconds
                        if patient
                        else procfs.starved(self._tree.process.pid, limits.wall_seconds)
                    )
                    deadline = time.monotonic() + _DEATH_SECONDS
                    self._kill_program()
                for key, _ in events:
                    if key.data is None:
                        ended = self._receive(time.monotonic() + 1.0)
                        selector.unregister(self._control)
                        deadline = min(deadline, time.monotonic() + _DEATH_SECONDS)
                    elif not key.data.read() and key.data is not streams[1]:
                        out_of_output = True
                        selector.unregister(key.fd)
                        key.data.open = False
                        if not killed and ended is None:
                            killed = True
                            deadline = time.monotonic() + _DEATH_SECONDS
                            self._kill_program()
                    elif not key.data.open:
                        selector.unregister(key.fd)
        return self._ended(ended, streams, limits, started, out_of_time, out_of_output, starved)

    def _owed(self, started: float, limits: Limits) -> float:
        """Seconds of its wall time that the program spent waiting for a CPU and gets back."""
        elapsed = time.monotonic() - started
        if elapsed >= _PATIENCE * limits.wall_seconds:
            return 0.0
        left = limits.wall_seconds - elapsed + procfs.waited(self._tree.process.pid)
        return max(left, 0.0) and max(left, 0.5)

    def _ended(
        self,
        report: dict[str, object],
        streams: list[_Pipe],
        limits: Limits,
        started: float,
        out_of_time: bool,
        out_of_output: bool,
        starved: bool,
    ) -> Ended:
        exit_code, cpu = report.get("exit"), report.get("cpu")
        if not isinstance(exit_code, int) or not isinstance(cpu, int | float):
            raise SandboxBroken(f"the guest reported nonsense: {report!r:.200}")
        self.clean = bool(report.get("clean"))
        by_cpu = exit_code < 0 and cpu >= _NEARLY * limits.cpu_seconds
        stdout, stderr, result = (bytes(stream.data) for stream in streams)
        return Ended(
            exit_code,
            stdout,
            stderr,
            result,
            cpu,
            time.monotonic() - started,
            out_of_time or by_cpu,
            out_of_output,
            starved and not by_cpu,
        )

    def _too_many_files(self) -> bool:
        if self._scratch < 0:
            return False
        found = os.fstatvfs(self._scratch)
        return found.f_files - found.f_ffree > FILES

    def _kill_program(self) -> None:
        with contextlib.suppress(OSError):
            self._control.send(b"K")

    def _receive(self, deadline: float) -> dict[str, object]:
        """One message of the guest."""
        while b"\n" not in self._buffer:
            self._control.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self._control.recv(4096)
            except OSError as error:
                raise SandboxBroken(f"no word from the guest: {error}") from error
            finally:
                self._control.settimeout(None)
            if not data or len(self._buffer) > 65_536:
                raise SandboxBroken("the guest ended")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError as error:
            raise SandboxBroken(f"the guest spoke nonsense: {line!r:.200}") from error
        if not isinstance(message, dict):
            raise SandboxBroken(f"the guest spoke nonsense: {line!r:.200}")
        return message

    def close(self) -> None:
        """Kill everything inside and wait until it is gone."""
        if self._scratch >= 0:
            os.close(self._scratch)
            self._scratch = -1
        self._tree.kill()
