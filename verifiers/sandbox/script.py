"""One untrusted script for as long as its owner talks to it: the code of an environment wheel.

It runs in the interpreter of its own virtual environment under the rules of all programs here:
no network, no processes, read-only files, 64 MiB of scratch in /tmp, an unprivileged user.
The owner speaks with it over `stdin` and `stdout`, bounds what it reads and how long it waits,
and calls `kill`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from verifiers.errors import SandboxUnavailable
from verifiers.sandbox import profile, run
from verifiers.sandbox.cage import Limits
from verifiers.sandbox.launch import Start, Tree


def start_script(
    python: Path,
    script: Path,
    *args: str,
    read_only: Sequence[Path] = (),
    limits: Limits,
    forks: bool = False,
) -> Tree:
    """Start `script` in the virtual environment of `python`; what is visible besides that
    environment is in `read_only`, at the same paths. Of the limits those of memory, CPU time
    (of the whole life) and threads are kept here. With `forks` it may start processes, each with
    these limits of memory and CPU time; the owner then watches over their sum.
    """
    reason = run.availability()[1]
    if reason:
        raise SandboxUnavailable(reason)
    if os.path.realpath(python) != profile.python_path():
        raise SandboxUnavailable(
            f"{python} belongs to another interpreter than {profile.python_path()}; make the "
            f"virtual environment with this one: python -m venv"
        )
    python = python.absolute()
    environment, link = python.parent.parent, python
    visible = [environment, script.absolute(), *read_only]
    while link.is_symlink():  # its interpreter, by every name on the way there
        link = link.parent / link.readlink()
        if not link.is_relative_to(environment):
            visible.append(link)
    start = Start(
        mounts=tuple((str(path), str(path)) for path in visible),
        python=str(python),
        script=(str(script.absolute()), *args),
        limits=limits.rlimits(1 if os.geteuid() == 0 or run.in_bubblewrap() else None),
        forks=forks,
    )
    return Tree(start, in_bubblewrap=run.in_bubblewrap())
