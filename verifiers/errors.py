"""Errors of the verifiers package.

`RowFault` and `VerifierFault` carry a fault from a kind to the registry, which turns
them into an unscored result; callers of `score` never see them.
"""


class VerifiersError(Exception):
    """Base class of all errors of this package."""

    retryable: bool = False


class UnknownTaskType(VerifiersError, KeyError):
    """No verifier is registered under this task type."""

    def __init__(self, task_type: object, known: tuple[str, ...]):
        self.message = (
            f"unknown task_type {task_type!r}; known: {', '.join(known)}; "
            "register a kind in verifiers/registry.py or drop the row"
        )
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message


class RowFault(VerifiersError):
    """The task row cannot be verified: its truth is missing, unreadable or undecidable."""


class VerifierFault(VerifiersError):
    """The verifier cannot judge: a broken scorer, a missing library, no sandbox here."""


class WorkerLost(VerifiersError):
    """A verifier process could not be started or died without a cause of its own."""

    retryable = True


class SandboxUnavailable(VerifierFault):
    """This machine cannot run untrusted code safely; the message says why."""


class SandboxBroken(VerifierFault):
    """A sandbox died or spoke nonsense through no fault of the program inside."""

    retryable = True


class BadLock(VerifiersError):
    """A lock file of an environment wheel holds something else than pinned, hashed wheels."""


class InstallFailed(VerifiersError):
    """pip refused to resolve or install the wheels of an environment."""


class EnvironmentMissing(VerifierFault):
    """No environment with this lock is installed on this machine."""


class EnvironmentBroken(VerifierFault):
    """An environment failed, hung, or broke the protocol; it is no verdict on the answer."""


class EnvironmentSlow(EnvironmentBroken):
    """An environment gave no answer within its wall time."""


class BrokenVerifier(VerifiersError):
    """A kind judges its own examples wrongly on this machine."""

    def __init__(self, problems: list[str]):
        super().__init__(f"refusing to score: {'; '.join(problems)}")
