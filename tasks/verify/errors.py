"""Faults of the verify stage."""


class VerifyError(Exception):
    """Base class; `retryable` says whether scoring the shard again may help."""

    retryable = False


class VerdictsMissing(VerifyError):
    """There is nothing to score."""

    def __init__(self, path: str):
        super().__init__(f"{path} is not committed: run the validate stage first")
