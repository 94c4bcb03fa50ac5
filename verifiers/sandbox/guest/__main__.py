"""Enter the sandbox's rules and work: as a fork server for programs, or as one long program.

One argument: the number of a descriptor with the settings, JSON. Whatever is hostile is
imported or run only after the rules are in force.
"""

import gc
import importlib
import json
import os
import runpy
import site
import socket
import sys
from dataclasses import dataclass
from typing import Any

from .confine import become, die_with, limit_resources, load_filter, restrict_files
from .program import read_all
from .server import serve


@dataclass
class Settings:
    """What the outside decided."""

    uid: int
    """User to become; -1: stay."""
    owner: int
    """Process id of a parent to die with; 0: bubblewrap sees to it."""
    scratch: str
    files: list[list[str]] | None
    """Landlock rules; None: the mounts say what is visible."""
    packages: str
    preload: list[str]
    placeholder: int
    guest_filter: bytes
    program_filter: bytes
    control: int
    """Socket of the fork server or of the script."""
    script: list[str]
    """A script and its arguments, to run in place of the fork server."""
    limits: dict[str, int]
    """Limits of the script."""
    forks: bool
    """The script may fork; its children lose that with the function `confine` that it finds among
    its globals, beside `control`."""


def read_settings(fd: int) -> Settings:
    """The settings; filters travel as hex."""
    values: dict[str, Any] = json.loads(read_all(fd))
    for name in ("guest_filter", "program_filter"):
        values[name] = bytes.fromhex(values[name])
    return Settings(**values)


def run_script(settings: Settings) -> None:
    """One program for the life of the sandbox, in the virtual environment of its interpreter."""

    def confine(limits: dict[str, int]) -> None:
        limit_resources(limits)
        load_filter(settings.program_filter, settings.placeholder)

    limit_resources(settings.limits)
    load_filter(settings.guest_filter, settings.placeholder)
    if not settings.forks:
        confine({})
    site.main()  # hostile, too: .pth files run code
    sys.argv = settings.script
    given = {"confine": confine, "control": settings.control}
    runpy.run_path(settings.script[0], given, run_name="__main__")


def main() -> None:
    """See the module's text."""
    settings = read_settings(int(sys.argv[1]))
    become(settings.uid)
    if settings.owner:
        die_with(settings.owner)
    if settings.files is not None:
        restrict_files(settings.files)
    sys.path.remove(os.environ.pop("PYTHONPATH"))
    os.chdir(settings.scratch)
    if settings.script:
        run_script(settings)
        return
    if settings.packages:
        sys.path.append(settings.packages)
    for name in settings.preload:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork then shares more pages with the server
    load_filter(settings.guest_filter, settings.placeholder)
    serve(socket.socket(fileno=settings.control), settings)


if __name__ == "__main__":
    main()
