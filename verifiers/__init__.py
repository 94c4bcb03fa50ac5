"""Verifiers: task_type -> scorer of a completion, by fixed rules (see README.md here).

`score` never raises for what a row or a completion holds, and never hangs.
"""

from verifiers.errors import BrokenVerifier, UnknownTaskType, VerifiersError
from verifiers.pool import score_many, start_worker
from verifiers.registry import is_binary, missing, task_types
from verifiers.result import Score
from verifiers.scoring import score
from verifiers.selftest import refuse_broken, self_test

__all__ = [
    "BrokenVerifier",
    "Score",
    "UnknownTaskType",
    "VerifiersError",
    "is_binary",
    "missing",
    "refuse_broken",
    "score",
    "score_many",
    "self_test",
    "start_worker",
    "task_types",
]
