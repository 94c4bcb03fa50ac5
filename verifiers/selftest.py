"""The self-test at start-up: kinds judge their own examples before any work is done.

Processes that judge try this for themselves before their first row of a kind (health.py).
"""

from collections.abc import Iterable

from verifiers import health
from verifiers.errors import BrokenVerifier
from verifiers.kinds.base import Kind
from verifiers.registry import KINDS, kind_of
from verifiers.registry import task_types as known_types
from verifiers.scoring import score


def self_test() -> list[str]:
    """Problems found on the way that rows take, one sentence each; empty when all kinds work."""
    return [problem for kind in KINDS for problem in _problems(kind)]


def refuse_broken(task_types: Iterable[str]) -> None:
    """Raise BrokenVerifier unless the kinds of these task types judge their examples rightly.

    A kind that lacks something on this machine is not broken; unknown task types are passed over.
    """
    found = {health.fault(kind_of(name)) for name in set(task_types) & set(known_types())}
    if problems := sorted(found - {""}):
        raise BrokenVerifier(problems)


def _problems(kind: Kind) -> list[str]:
    problems = []
    for completion, info, expected in kind.self_tests:
        got = score(kind.task_types[0], completion, info)
        if health.wrong(kind, got, expected):
            problems.append(
                f"{kind.name}: {completion[:60]!r} scored {got.score} ({got.status}: "
                f"{got.detail}), expected {expected}"
            )
    return problems
