"""What can stop a report."""


class ReportError(Exception):
    """Base of this package's errors."""

    retryable = False


class NoSuchRun(ReportError):
    """The store holds nothing of this run."""

    def __init__(self, run_id: str, root: str, known: list[str]) -> None:
        listing = ", ".join(known[:10]) or "none"
        super().__init__(
            f"run {run_id!r} has no committed tasks below {root}; runs there: {listing}. Give one "
            f"of "
            "them, or another store, or start it with `tracemill run --run-id`."
        )
