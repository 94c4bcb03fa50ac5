"""A judge's word on what it works at, so that a kill can be blamed on the right side.

In a worker process the hook sends the phase to the parent, which also restarts the clock
of kinds that keep their own deadlines; elsewhere reporting does nothing.
"""

from collections.abc import Callable

TRUTH = "truth"
ANSWER = "answer"

_hook: Callable[[str], None] | None = None


def set_hook(hook: Callable[[str], None] | None) -> None:
    """Send later reports to `hook`."""
    global _hook
    _hook = hook


def report(phase: str) -> None:
    """Say what is being worked at from now on."""
    if _hook is not None:
        _hook(phase)
