"""What a verification yields.

Invariant: `score` is a number from 0 to 1 for the statuses that judge the completion
(ok, no_answer, timeout, crash) and None for the two that do not (unverifiable,
verifier_error). Unscored is never written as 0.
"""

from dataclasses import dataclass

OK = "ok"
NO_ANSWER = "no_answer"
TIMEOUT = "timeout"
CRASH = "crash"
UNVERIFIABLE = "unverifiable"
VERIFIER_ERROR = "verifier_error"

JUDGED = (OK, NO_ANSWER, TIMEOUT, CRASH)
UNSCORED = (UNVERIFIABLE, VERIFIER_ERROR)

DETAIL_LIMIT = 500


@dataclass(frozen=True)
class Outcome:
    """The verdict of a kind, before the registry adds name, version and time."""

    score: float | None
    status: str
    detail: str = ""

    def __post_init__(self) -> None:
        if (self.score is None) != (self.status in UNSCORED):
            raise ValueError(f"status {self.status!r} does not go with score {self.score!r}")


@dataclass(frozen=True)
class Score:
    """One verified row. `verifier` is kind@version, `verifier_config` a hash of its settings."""

    score: float | None
    status: str
    verifier: str
    verifier_config: str
    detail: str
    seconds: float
    binary: bool


def judged(value: float, detail: str = "") -> Outcome:
    """The answer was judged; clamp the rounding of float arithmetic into [0, 1]."""
    return Outcome(min(1.0, max(0.0, float(value))), OK, detail)


def no_answer(detail: str) -> Outcome:
    """The completion holds nothing to judge."""
    return Outcome(0.0, NO_ANSWER, detail)


def timed_out(detail: str) -> Outcome:
    """The answer could not be judged in time, by its own fault."""
    return Outcome(0.0, TIMEOUT, detail)


def crashed(detail: str) -> Outcome:
    """The answer's program died."""
    return Outcome(0.0, CRASH, detail)


def unverifiable(detail: str) -> Outcome:
    """The task row is at fault."""
    return Outcome(None, UNVERIFIABLE, detail)


def verifier_error(detail: str) -> Outcome:
    """The verifier (or this machine) is at fault."""
    return Outcome(None, VERIFIER_ERROR, detail)
