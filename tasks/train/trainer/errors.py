"""Errors of the RL trainer."""

from pathlib import Path

from tasks.train.errors import TrainError


class BadSample(TrainError):
    """A sample cannot be trained on."""

    def __init__(self, sample_id: str, problem: str) -> None:
        self.sample_id = sample_id
        super().__init__(
            f"sample {sample_id}: {problem}. A sample needs prompt and output tokens of the "
            "model's vocabulary, one finite log-probability per output token, a finite advantage "
            "and a temperature above 0. Leave it out of the selection."
        )


class BadSelection(TrainError):
    """A selection file is not one."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(
            f"selection file {path}: {problem}. It must be written whole by write_selection; "
            "remove it and let the flow choose the step again."
        )


class BadSettings(TrainError):
    """The settings of a run cannot be used."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(
            f"trainer settings {path}: {problem}. A run keeps the settings of its first start; "
            "use them, or start another run."
        )


class NothingToTrain(TrainError):
    """No token of a rollout step carries loss."""

    def __init__(self, step: int, samples: int) -> None:
        super().__init__(
            f"rollout step {step}: none of its {samples} samples is trainable, so there is no loss "
            "and no normaliser. Select until the batch holds trainable samples."
        )


class ModelUnsupported(TrainError):
    """The trainer cannot train this model exactly."""

    def __init__(self, model_dir: Path, problem: str) -> None:
        super().__init__(f"model {model_dir}: {problem}. Name another model.")


class AttentionUnsupported(TrainError):
    """A layer asks for attention that the packed one does not compute."""

    def __init__(self, options: list[str], window: int | None, longest: int) -> None:
        super().__init__(
            f"the model's attention has options {options}, sliding window {window}, with samples "
            f"of up to {longest} tokens; packed attention is plain and causal, without dropout, "
            "and a window must hold the longest sample. Train another model or shorter samples."
        )


class StepNotFinite(TrainError):
    """Loss or gradient was NaN or infinite at too many optimizer steps in a row."""

    def __init__(self, step: int, skipped: int, loss: float, grad_norm: float) -> None:
        super().__init__(
            f"rollout step {step}: {skipped} optimizer steps in a row were skipped, since loss or "
            f"gradient norm was not finite (at the last one {loss} and {grad_norm}). The weights "
            "are as before them. A run keeps its settings, so start another run id with a lower "
            "learning_rate; its model may be the newest directory in this run's weights/."
        )


class BadCheckpoint(TrainError):
    """A checkpoint is damaged or is of another run."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(
            f"checkpoint {path}: {problem}. Resume with the settings of the run, or remove the "
            "checkpoint to resume from the one before it."
        )
