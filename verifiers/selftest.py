"""A self-test of every kind at start-up, so that a broken one is not used.

Each kind brings examples whose score is known; the answers differ from garbage.
"""

from verifiers.registry import KINDS
from verifiers.scoring import score


def self_test() -> list[str]:
    """Problems found, one sentence each; empty when all kinds work here."""
    problems = []
    for kind in KINDS:
        for completion, info, expected in kind.self_tests:
            got = score(kind.task_types[0], completion, info)
            if got.score != expected:
                problems.append(
                    f"{kind.name}: {completion[:60]!r} scored {got.score} ({got.status}: "
                    f"{got.detail}), expected {expected}"
                )
    return problems
