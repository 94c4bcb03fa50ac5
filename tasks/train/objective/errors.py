"""Errors of the objective; all of them are faults of the caller's data or options."""

from tasks.train.errors import TrainError


class ObjectiveError(TrainError):
    """Base of what the objective raises."""


class MisshapenInput(ObjectiveError):
    """A tensor is not one entry per token."""

    def __init__(self, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
        self.name = name
        super().__init__(
            f"policy_loss: {name} has shape {shape}; it must be {expected}, one entry per token of "
            "the packed row. Align it with logprobs (index i belongs to token i)."
        )


class MissingInput(ObjectiveError):
    """An option needs a tensor that was not given."""

    def __init__(self, name: str, option: str, value: float) -> None:
        self.name = name
        super().__init__(
            f"policy_loss: {option} = {value:g} needs {name}, which is None. Give {name} for every "
            f"token, or set {option} to 0."
        )


class BadNormaliser(ObjectiveError):
    """The divisor of the loss is not a positive number."""

    def __init__(self, value: float) -> None:
        super().__init__(
            f"policy_loss: normaliser is {value}; it must be finite and above 0. Take it from "
            "aggregation.normaliser over the samples of the whole optimizer step."
        )


class BadReward(ObjectiveError):
    """A reward is not a finite number."""

    def __init__(self, group: int, index: int, value: object) -> None:
        super().__init__(
            f"reward {index} of group {group} is {value!r}; it must be a finite number, or None "
            "for a sample without a score. Give None where the verifier has none."
        )


class BadLength(ObjectiveError):
    """A length or target of a length reward is out of its range."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"length reward: {name} is {value!r}; allowed: {allowed}.")
