"""Faults of making and checking rollouts; `retryable` says whether another attempt may help."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.train.errors import TrainError


class RolloutError(TrainError):
    """Base class of this package."""


class RolloutsRefused(RolloutError):
    """A node's upload is not taken; nothing of it is used, and the ledger says why.

    It ends the pool's job; who deals the jobs gives another one out.
    """

    def __init__(
        self,
        name: str,
        node_id: str,
        reasons: Sequence[str],
        *,
        lie: bool,
        evidence: Mapping[str, Any] | None = None,
    ):
        self.reasons = list(reasons)
        self.lie = lie
        """Whether only a lie explains it; else it may be an accident, or nobody's fault."""
        self.strike = not lie
        """For the pool: who uploads such things again and again gets no more work for a while."""
        self.evidence = dict(evidence or {})
        super().__init__(
            f"rollouts {name} of node {node_id} refused: {'; '.join(reasons)[:500]}. Nothing of "
            "them is trained on; let another node do the job"
        )


class CheckCrashed(RolloutError):
    """The check failed as a whole, on several nodes; the upload's node is not to blame for it."""

    def __init__(self, name: str, words: str):
        super().__init__(
            f"the check of rollouts {name} crashed: {words[:500]}. They are not used, and no node "
            "answers for it; look at the checking nodes' models and memory"
        )
