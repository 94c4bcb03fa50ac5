"""What can go wrong with a whole source; a bad row is data (`rows.Bad`), never an exception."""

from collections.abc import Iterable
from difflib import get_close_matches


class CollectError(Exception):
    """Base of all errors of the collect stage."""

    retryable = False


class SourceNotFound(CollectError):
    """A file or dataset that a source names is not there or cannot be opened."""


class SourceUnreachable(CollectError):
    """The way to a source broke; its rows are neither good nor bad."""

    retryable = True


class UnknownName(CollectError):
    """A generator, a maker or an option that does not exist."""

    def __init__(self, kind: str, received: str, allowed: Iterable[str], where: str) -> None:
        names = sorted(allowed)
        near = get_close_matches(received, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(
            f"{where}: unknown {kind} {received!r}.{hint} Allowed: {', '.join(names) or 'none'}. "
            "Correct the source in the config."
        )
        self.received = received
        self.nearest = near[0] if near else ""


class DeniedGenerator(CollectError):
    """A reasoning-gym generator whose rewards cannot be trusted."""


class BadOption(CollectError):
    """An option of a generator or a knob of a maker has a value that it refuses."""


class SandboxNeeded(CollectError):
    """A maker would have to run code that came with data, and this machine has no sandbox."""


class MachineBusy(CollectError):
    """A maker's program got no CPU, so its result is not known yet."""

    retryable = True


class NothingCollected(CollectError):
    """Every row was quarantined, or the sources were empty."""
