"""What the kernel says about the processes of a sandbox, read from outside."""

import os
from pathlib import Path

_STARVED_SHARE = 1 / 3
"""A program may use 5 s of CPU in 15 s of wall time: if it waited for the CPU for less than a
third of the time, then it slept for longer than it may, whatever the machine did."""


def children(pid: int) -> list[int]:
    """Ids of the children of a process; empty when it is gone."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one, nearest first."""
    found, pending = [], [pid]
    while pending:
        below = children(pending.pop(0))
        found += below
        pending += below
    return found


def memory(pid: int) -> int:
    """Bytes of memory, files apart, that all processes below one hold; pages that a fork shares
    with its parent count for both.
    """
    total = 0
    for process in descendants(pid):
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:
            continue
        words = [line.split() for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
        total += sum(int(count) for _, count, _ in words) << 10
    return total


def directory_of(sandbox_pid: int, path: str) -> int:
    """A descriptor of a directory as the deepest process of a sandbox sees it; -1: hidden."""
    below = descendants(sandbox_pid)
    try:
        return os.open(f"/proc/{below[-1]}/root{path}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, IndexError):
        return -1


def cpu_wait_seconds(pid: int) -> float:
    """The longest time that a thread of the process was runnable without a CPU."""
    longest = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            longest = max(longest, int(task.read_text().split()[1]) / 1e9)
        except (OSError, ValueError, IndexError):
            continue
    return longest


def waited(sandbox_pid: int) -> float:
    """Seconds that the program, the deepest process of the sandbox, waited for a CPU."""
    below = descendants(sandbox_pid)
    return cpu_wait_seconds(below[-1]) if below else 0.0


def starved(sandbox_pid: int, wall_seconds: float) -> bool:
    """True when the program mostly waited for a CPU."""
    return waited(sandbox_pid) >= wall_seconds * _STARVED_SHARE
