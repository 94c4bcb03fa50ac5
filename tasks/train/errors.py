"""Errors of the training package; `retryable` decides whether a flow tries again."""


class TrainError(Exception):
    """Base of everything that training raises on purpose."""

    retryable: bool = False


class BadTrainingRow(TrainError):
    """A row cannot become a training example."""

    def __init__(self, index: int, problem: str) -> None:
        self.index = index
        self.problem = problem
        super().__init__(
            f"training row {index}: {problem}; a row needs `messages` (a list of role and content "
            "with a user turn) and `completion` (a non-empty text). Fix or drop the row."
        )


class NoTrainingData(TrainError):
    """Nothing is left to train on."""

    def __init__(self, rows: int, too_long: int, max_tokens: int) -> None:
        self.rows = rows
        self.too_long = too_long
        self.max_tokens = max_tokens
        super().__init__(
            f"no training example left: {rows} rows given, {too_long} of them longer than "
            f"max_tokens={max_tokens}. Give more rows or raise max_tokens."
        )


class LossNotFinite(TrainError):
    """The loss became NaN or infinite; going on would destroy the weights."""

    def __init__(self, step: int, loss: float, learning_rate: float) -> None:
        self.step = step
        super().__init__(
            f"loss is {loss} at step {step} (learning rate {learning_rate:g}); it must be finite. "
            "Lower learning_rate or lengthen warmup_steps."
        )


class UnscoredTask(TrainError):
    """A verifier gave no score for one of the curriculum's own tasks."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind = kind
        super().__init__(
            f"a held-out task of {kind} got no score ({detail}); every one must get a number. "
            "Fix the task's verification_info or its verifier."
        )


class CannotGrow(TrainError):
    """A model cannot be grown into the shape asked for."""

    def __init__(self, name: str, small: object, large: object) -> None:
        self.name = name
        super().__init__(
            f"cannot grow the model: {name} is {small} and would become {large}. Layers, heads and "
            "MLP width may only grow; everything else must stay."
        )


class CannotPack(TrainError):
    """A sample does not fit into a packed row."""

    def __init__(self, index: int, tokens: int, capacity: int) -> None:
        self.index = index
        super().__init__(
            f"sample {index} has {tokens} tokens; a packed row holds 1 to {capacity}. Raise the "
            "tokens per micro-batch or leave the sample out before packing."
        )
