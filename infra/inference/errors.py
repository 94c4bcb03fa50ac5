"""Errors of the inference engines."""

from pathlib import Path


class InferenceError(Exception):
    """Base of the errors that an engine raises."""

    retryable = False


class EngineUnsupported(InferenceError):
    """The model's architecture cannot be decoded, or proven, by this engine."""

    def __init__(self, model_id: str, reason: str):
        super().__init__(
            f"model {model_id!r} cannot run on the transformers engine: {reason}. "
            "Choose a decoder-only model with full or sliding-window attention."
        )


class EngineClosed(InferenceError):
    """The engine was used after close()."""

    def __init__(self, model_id: str):
        super().__init__(f"the engine of {model_id!r} is closed; load it again with load_engine()")


class PromptError(InferenceError):
    """The chat template does not accept these messages."""

    def __init__(self, model_id: str, reason: str):
        super().__init__(
            f"the chat template of {model_id!r} refused the messages: {reason}. "
            "Give a list of {role, content} with the roles that the model knows."
        )


class BadItem(InferenceError):
    """Token ids given to prefill cannot be put through the model."""

    def __init__(self, index: int, reason: str):
        self.index = index
        super().__init__(f"prefill item {index}: {reason}")


class WeightsDoNotFit(InferenceError):
    """Weight files that are not of the model that is loaded."""

    def __init__(self, directory: Path, missing: list[str], odd: list[str]):
        super().__init__(
            f"the weights in {directory} do not fit the loaded model: missing {missing[:5]}, of "
            f"another shape {odd[:5]}. Load the directory as a model of its own"
        )
