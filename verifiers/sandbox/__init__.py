"""A sandbox for untrusted Python: bubblewrap, rlimits, seccomp, no network, no processes."""

from verifiers.sandbox.cage import Ended, Limits
from verifiers.sandbox.run import availability, run_program
from verifiers.sandbox.script import start_script

__all__ = ["Ended", "Limits", "availability", "run_program", "start_script"]
