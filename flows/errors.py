"""Faults of configuration and of whole runs."""

from collections.abc import Sequence
from difflib import get_close_matches


class FlowError(Exception):
    """Base class; none of these goes away by trying again."""

    retryable = False


class BadConfig(FlowError):
    """A profile, a `--set` or a parameter that is not a valid config."""


class OtherConfig(FlowError):
    """The run exists with another config."""

    def __init__(self, run_id: str, differences: Sequence[str]):
        lines = "\n".join(f"  {line}" for line in differences)
        super().__init__(
            f"run {run_id!r} exists with another config, and a run keeps the config it was started "
            f"with. Different (run -> now):\n{lines}\n"
            "Use the run's own config to resume it, or another --run-id for a new run"
        )
        self.differences = tuple(differences)


class DamagedRun(FlowError):
    """A run whose record cannot be read."""

    def __init__(self, run_id: str, uri: str, why: str):
        super().__init__(
            f"run {run_id!r}: its record {uri} is damaged ({why}). Put the file back from a copy, "
            "or start a new run with another --run-id"
        )


class NodeEnded(FlowError):
    """An agent that ended with a fault."""

    def __init__(self, url: str, code: int):
        super().__init__(f"the node's agent for {url} ended with code {code}; see the run's log")


class NoRun(FlowError):
    """A run id that nothing is known of."""

    def __init__(self, run_id: str, root: str):
        super().__init__(
            f"run {run_id!r} does not exist under {root}: start it with `tracemill run --run-id "
            f"{run_id}`, or give the storage root of the run with --set storage.root=..."
        )


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean ...` for a misspelt name, or the list of what there is."""
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"
