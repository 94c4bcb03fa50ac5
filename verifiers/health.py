"""Calling a kind's judge, and whether the kind works in this process at all.

Invariant: a kind that judges its own examples wrongly here (another parser runtime, a language
detector without its seed, …) is not used: each of its rows is null with the reason.
"""

import threading

from verifiers.errors import RowFault, VerifierFault
from verifiers.kinds.base import Info, Kind
from verifiers.result import (
    VERIFIER_ERROR,
    Outcome,
    Score,
    timed_out,
    unverifiable,
    verifier_error,
)

_faults: dict[str, str] = {}
"""What was found in this process, or in the one it was forked from."""
_lock = threading.Lock()


def run_judge(kind: Kind, answer: str, info: Info) -> Outcome:
    """Call the judge; every exception becomes an outcome."""
    try:
        return kind.judge(answer, info)
    except RowFault as fault:
        return unverifiable(str(fault))
    except VerifierFault as fault:
        return verifier_error(str(fault))
    except MemoryError:
        return timed_out("judging the answer needs more memory than allowed")
    except Exception as error:
        return verifier_error(f"{type(error).__name__}: {error}")


def wrong(kind: Kind, got: Outcome | Score, expected: float | None) -> bool:
    """True when an example did not come out as it must.

    A sandbox that could not be had this once says nothing about the verdicts of its kind.
    """
    if kind.self_limiting and got.status == VERIFIER_ERROR:
        return False
    return got.score != expected


def fault(kind: Kind) -> str:
    """Why this process must not use the kind; empty when it works. Tried once per process.

    A kind that lacks something on this machine is not broken: its rows say what is missing.
    """
    if kind.name not in _faults:
        with _lock:  # libraries that load on first use are not made for two threads at once
            if kind.name not in _faults:
                _faults[kind.name] = "" if kind.missing() else _first_problem(kind)
    return _faults[kind.name]


def _first_problem(kind: Kind) -> str:
    problem = _misjudged(kind)
    if not problem:
        return ""
    return (
        f"{kind.name} is broken here: {problem}; compare the installed libraries with "
        "requirements/cpu.lock (`tracemill doctor` repeats the test)"
    )


def _misjudged(kind: Kind) -> str:
    try:
        problem = kind.unsound()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        return problem
    for answer, info, expected in kind.self_tests:
        got = run_judge(kind, answer, info)
        if wrong(kind, got, expected):
            return (
                f"its example {answer[:60]!r} scored {got.score} ({got.status}: {got.detail}), "
                f"expected {expected}"
            )
    return ""
