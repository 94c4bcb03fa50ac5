"""Faults of provisioning."""


class ProvisionError(Exception):
    """Base class; the same machines fail again."""

    retryable = False


class NotReady(ProvisionError):
    """The service or the nodes did not come up."""

    def __init__(self, what: str, seconds: float, words: str):
        super().__init__(
            f"{what} did not come up within {seconds:.0f} s. Its last words: {words or '(none)'}"
        )
