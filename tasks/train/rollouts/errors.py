"""Faults of making and checking rollouts; `retryable` says whether another attempt may help."""

from tasks.train.errors import TrainError


class RolloutError(TrainError):
    """Base class of this package."""


class RolloutsRefused(RolloutError):
    """A node's file is not what was asked for; nothing of it is used."""

    retryable = True

    def __init__(self, name: str, node_id: str, reasons: list[str]):
        self.reasons = reasons
        super().__init__(
            f"rollouts {name} of node {node_id} refused: {'; '.join(reasons)[:500]}. Nothing of "
            "them is trained on; the job is done again by another node"
        )
