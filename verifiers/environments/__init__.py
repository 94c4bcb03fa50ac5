"""Environment wheels of the PyPI library `verifiers`: how people share tasks.

A wheel is hostile code: it is installed from a lock file with hashes into a virtual environment of
its own and runs in a sandbox; we speak with it in JSON (threat model: README.md of `verifiers`).
"""

from verifiers.environments.episode import Episode, Result, Turn, play
from verifiers.environments.install import environment_root, install, python_of
from verifiers.environments.lock import Lock, make_lock, read_lock
from verifiers.environments.process import EnvironmentProcess

__all__ = [
    "EnvironmentProcess",
    "Episode",
    "Lock",
    "Result",
    "Turn",
    "environment_root",
    "install",
    "make_lock",
    "play",
    "python_of",
    "read_lock",
]
