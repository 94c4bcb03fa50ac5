"""The worker side of the pool: a template process that forks warm workers.

The template imports the slow libraries once, without running anything of a row; each
worker is a fork of it, so replacing a killed one costs milliseconds. Workers die with the
template (and their sandboxes with them), the template with its owner.
"""

import contextlib
import ctypes
import dataclasses
import os
import resource
import signal
import socket
import sys

from verifiers import progress, wire

MEMORY_LIMIT = 4 << 30
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def serve(sock: socket.socket) -> None:
    """Judge rows from the socket until the owner closes it."""
    from verifiers.registry import judge_row

    def send(message: object) -> None:
        sock.sendall(wire.encode(message))

    progress.set_hook(lambda phase: send({"phase": phase}))
    send({"pid": os.getpid()})
    reader = wire.FrameReader()
    while rows := wire.receive(sock, reader):
        for task_type, completion, info, require_think in rows:
            send(
                {"score": dataclasses.asdict(judge_row(task_type, completion, info, require_think))}
            )


def _limit_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _preload() -> None:
    """Import what is slow, and try the kinds that are judged here, once for all workers."""
    import sympy  # noqa: F401

    from verifiers import health, registry
    from verifiers.kinds import reasoning_gym

    reasoning_gym.preload()
    for kind in registry.KINDS:
        if not kind.self_limiting:
            health.fault(kind)


def main(fd: int) -> None:
    """The template: fork a worker for each socket received, until end of file."""
    if sys.flags.hash_randomization:
        raise SystemExit(
            "a verifier's worker needs PYTHONHASHSEED=0: some scorers iterate over sets"
        )
    owner = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers are reaped by the kernel
    while True:
        data, fds, _, _ = socket.recv_fds(owner, 1, 1)
        if not data:
            return
        if os.fork() == 0:
            status = 1
            try:
                die_with_parent()
                owner.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _limit_memory()
                serve(socket.socket(fileno=fds[0]))
                status = 0
            except (BrokenPipeError, ConnectionResetError):
                status = 0
            finally:
                os._exit(status)
        os.close(fds[0])
