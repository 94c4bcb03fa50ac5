"""The fork server: it never reads a job, only forks and reports how the child ended."""

import json
import os
import select
import signal
import socket
from typing import Any

from .confine import die_with
from .program import child

MAX_LEFTOVERS = 5000


def clean_scratch(scratch: str) -> bool:
    """Remove what the last program left; False when it left too much to bother."""
    try:
        if os.stat(scratch).st_uid == os.getuid():
            os.chmod(scratch, 0o777)
        pending, seen, directories = [scratch], 0, []
        while pending:
            path = pending.pop()
            with os.scandir(path) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MAX_LEFTOVERS:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
                        pending.append(entry.path)
                        directories.append(entry.path)
                    else:
                        os.unlink(entry.path)
        for path in reversed(directories):
            os.rmdir(path)
        os.mkdir(f"{scratch}/x")  # the directory's times tell nothing of the last program
        os.rmdir(f"{scratch}/x")
    except OSError:
        return False
    return True


def reply(control: socket.socket, message: Any) -> None:
    """One line of JSON to the outside."""
    control.sendall(json.dumps(message).encode("ascii") + b"\n")


def run_one(control: socket.socket, fds: list[int], settings: Any) -> None:
    """Fork the program, wait for it, report how it ended."""
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with(server)
        control.close()
        child(fds, settings)
    for fd in fds:
        os.close(fd)
    watch = os.pidfd_open(pid)
    killed = False
    try:
        while True:
            sources = [watch] if killed else [control.fileno(), watch]
            if watch in select.select(sources, [], [])[0]:
                break
            # Any word now means "kill it"; end of file means that the owner is gone.
            if not control.recv(1):
                os._exit(0)
            os.kill(pid, signal.SIGKILL)
            killed = True
    finally:
        os.close(watch)
    _, status, usage = os.wait4(pid, 0)
    reply(
        control,
        {
            "exit": os.waitstatus_to_exitcode(status),
            "cpu": usage.ru_utime + usage.ru_stime,
            "rss_kib": usage.ru_maxrss,
            "clean": clean_scratch(settings.scratch),
        },
    )


def serve(control: socket.socket, settings: Any) -> None:
    """Run programs one after the other until the owner closes the line."""
    reply(control, {"ready": True})
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1, 5)
        if not data:
            return
        if data == b"R" and len(fds) == 5:
            run_one(control, fds, settings)
