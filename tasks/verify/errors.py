"""Faults of the verify stage."""


class VerifyError(Exception):
    """Base class; `retryable` says whether scoring the shard again may help."""

    retryable = False


class VerdictsMissing(VerifyError):
    """There is nothing to score."""

    def __init__(self, path: str):
        super().__init__(f"{path} is not committed: run the validate stage first")


class SchedulerLost(VerifyError):
    """The Dask scheduler is gone; nothing of the shard was committed."""

    retryable = True

    def __init__(self, error: Exception):
        super().__init__(
            f"the Dask scheduler is gone ({type(error).__name__}: {str(error)[:200]}). Start it "
            "again at the address in verify.scheduler and resume the run; committed shards stay"
        )


class WorkersLost(VerifyError):
    """The cluster has no worker left; nothing of the shard was committed."""

    def __init__(self, seconds: float):
        super().__init__(
            f"the Dask cluster had no worker for {seconds:g} s: every one died and none came back. "
            "Look at the workers' logs, then resume the run; committed shards stay"
        )
