"""Faults of making and checking rollouts; `retryable` says whether another attempt may help."""

from collections.abc import Sequence

from tasks.train.errors import TrainError


class RolloutError(TrainError):
    """Base class of this package."""


class RolloutsRefused(RolloutError):
    """A node's upload is not taken; nothing of it is used, and the ledger says why."""

    retryable = True

    def __init__(self, name: str, node_id: str, reasons: Sequence[str], *, lie: bool):
        self.reasons = list(reasons)
        self.lie = lie
        """Whether only a lie explains it; else it may be an accident, or nobody's fault."""
        super().__init__(
            f"rollouts {name} of node {node_id} refused: {'; '.join(reasons)[:500]}. Nothing of "
            "them is trained on; let another node do the job"
        )


class CheckCrashed(RolloutError):
    """The check failed on every row of an upload."""

    retryable = True

    def __init__(self, name: str, figures: str):
        super().__init__(
            f"the check crashed on each row of rollouts {name}; the first: {figures[:500]}. They "
            "are neither taken nor refused; look at the checking node's model and memory"
        )
