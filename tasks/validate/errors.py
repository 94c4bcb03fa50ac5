"""Faults of the validate stage."""

from pathlib import Path
from typing import Any


class ValidateError(Exception):
    """Base class; `retryable` says whether judging the shard again may help."""

    retryable = False


class BadTracesFile(ValidateError):
    """A file that is no file of traces, or not of the model's."""


class TracesMissing(ValidateError):
    """There is nothing to judge."""

    def __init__(self, path: str):
        super().__init__(f"{path} is not committed: run the generate stage first")


class NothingToRevoke(ValidateError):
    """A revocation of what does not stand."""

    def __init__(self, path: str):
        super().__init__(f"{path} is not committed, so there is nothing to revoke")


class ValidatorCrashed(ValidateError):
    """The validator failed on every trace of a shard."""

    retryable = True

    def __init__(self, shard_id: str, figures: str):
        super().__init__(
            f"the validator crashed on each trace of shard {shard_id}; the first: {figures}. "
            "No verdict was committed; look at the node's model and memory, then run again"
        )


class BadUpload(ValidateError):
    """An upload that cannot be accepted, whatever the model says; the text is the reason."""


class OtherRequest(ValidateError):
    """A name that was triggered with other values."""

    def __init__(self, name: str, known: dict[str, Any]):
        super().__init__(
            f"{name} was triggered before with {known}; a verdict belongs to one object: upload "
            "other content under another name"
        )


class QueueTaken(ValidateError):
    """Another process works on the queue."""

    def __init__(self, path: Path):
        super().__init__(
            f"queue {path} is in use by another validator; stop it, or give --state another "
            "directory"
        )


class OpenService(ValidateError):
    """A service that strangers could use."""

    def __init__(self, host: str):
        super().__init__(
            f"host {host!r} is not loopback and there is no token: write one to a file and give "
            "--token-file, or set TRACEMILL_VALIDATOR_TOKEN"
        )


class BadToken(ValidateError):
    """A token that is too easy to guess."""

    def __init__(self, length: int, least: int):
        super().__init__(
            f"the token has {length} characters, at least {least} are needed: make one with "
            "`python -c 'import secrets; print(secrets.token_urlsafe())'`"
        )
