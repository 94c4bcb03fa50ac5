"""The mathematics of the policy update, without models, files or processes.

Every function is pure and deterministic; tensors are flat: one entry per token of a packed row.
"""

from tasks.train.objective.config import DifficultyRange, LengthConfig, ObjectiveConfig
from tasks.train.objective.loss import LossTerms, policy_loss

__all__ = ["DifficultyRange", "LengthConfig", "LossTerms", "ObjectiveConfig", "policy_loss"]
