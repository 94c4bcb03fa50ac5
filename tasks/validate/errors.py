"""Faults of the validate stage."""


class ValidateError(Exception):
    """Base class; `retryable` says whether judging the shard again may help."""

    retryable = False


class TracesMissing(ValidateError):
    """There is nothing to judge."""

    def __init__(self, path: str):
        super().__init__(f"{path} is not committed: run the generate stage first")


class ValidatorCrashed(ValidateError):
    """The validator failed on every trace of a shard."""

    retryable = True

    def __init__(self, shard_id: str, figures: str):
        super().__init__(
            f"the validator crashed on each trace of shard {shard_id}; the first: {figures}. "
            "No verdict was committed; look at the node's model and memory, then run again"
        )
