"""What a kind is: a name, a version, its settings and a judge.

Invariants: `judge` gets the answer part (never the thinking) and the parsed row; it
returns an Outcome or raises RowFault / VerifierFault. It may be slow: unless the kind
is `self_limiting` it runs in a killable process, apart from what `quick` settles.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verifiers.errors import RowFault
from verifiers.result import Outcome

Info = Mapping[str, Any]
Judge = Callable[[str, Info], Outcome]


def never_quick(answer: str, info: Info) -> bool:
    """Leave every row to the killable process."""
    return False


def always_quick(answer: str, info: Info) -> bool:
    """Every row takes linear time."""
    return True


def always_there() -> str:
    """The kind needs nothing that a machine might lack or get wrong."""
    return ""


def short_texts(answer: str, info: Info) -> bool:
    """Character-wise difflib is quadratic: judge in the caller's process only small texts."""
    return len(answer) <= 3000 and sum(len(v) for v in info.values() if isinstance(v, str)) <= 3000


@dataclass(frozen=True)
class Kind:
    """A verifier. `settings` go into the config hash; a change of rule raises `version`."""

    name: str
    version: int
    task_types: tuple[str, ...]
    binary: bool
    judge: Judge
    quick: Callable[[str, Info], bool] = never_quick
    time_limit: float = 10.0
    """Seconds of CPU time an answer may take outside a sandbox."""
    self_limiting: bool = False
    """The judge keeps its own deadlines (the sandboxed kinds)."""
    reports_phase: bool = False
    """The judge reports when it is done with the truth, so that a kill blames the right side."""
    settings: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = field(default_factory=dict)
    """A function where the environment of the process decides."""
    missing: Callable[[], str] = always_there
    """What this machine lacks to judge any row of the kind, and the next step; empty: nothing."""
    unsound: Callable[[], str] = always_there
    """Why verdicts of the kind would be wrong in this process, where examples cannot show it."""
    self_tests: tuple[tuple[str, Info, float | None], ...] = ()
    """(answer part, verification_info, expected score) tried before the first row of a process."""


def text_of(info: Info, key: str) -> str:
    """A text the row must hold; an absent or empty one is the row's fault."""
    value = info.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RowFault(f"verification_info.{key} must be a non-empty string, got {value!r:.80}")
    return value
