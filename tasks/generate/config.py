"""Which models answer, and how tokens are drawn. Every field changes trace ids or the plan."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from infra.inference.protocol import SamplingParams


class SamplingConfig(BaseModel):
    """How tokens are drawn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(1.0, ge=0.0, le=5.0, description="0 takes the likeliest token.")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="Nucleus: keep this much probability.")
    top_k: int = Field(0, ge=0, description="Keep this many tokens; 0 keeps all.")
    min_p: float = Field(
        0.0, ge=0.0, lt=1.0, description="Drop tokens below this share of the likeliest one's."
    )
    max_tokens: int = Field(128, ge=1, le=1_000_000, description="Upper limit of output tokens.")
    stop: list[str] = Field(
        default_factory=list, description="Texts that end a completion, besides the model's own."
    )

    def as_dict(self) -> dict[str, Any]:
        """The `sampling` object of trace ids and of the traces table."""
        return self.model_dump()

    def params(self) -> SamplingParams:
        """The same for an engine."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            max_tokens=self.max_tokens,
            stop=tuple(self.stop),
        )


class ModelUse(BaseModel):
    """One model and what it does in the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="Registered model id, or a local directory of safetensors.")
    samples: int = Field(4, ge=1, le=1024, description="Samples for each task.")
    max_tasks: int = Field(
        0, ge=0, description="Answer only this many tasks, spread over the types; 0 answers all."
    )
    batch_size: int = Field(32, ge=1, le=4096, description="Traces that are decoded together.")
    batches_per_shard: int = Field(
        1, ge=1, le=1024, description="Batches of one shard; a shard is the unit of resumption."
    )
    sampling: SamplingConfig = Field(
        default=SamplingConfig(), description="How its tokens are drawn."
    )


class GenerateConfig(BaseModel):
    """The models of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    annotators: list[ModelUse] = Field(
        min_length=1,
        description="Smaller models whose pass rates give each task its difficulty.",
    )
    teacher: ModelUse = Field(description="The model whose answers are published for training.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [use.model for use in self.annotators]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"annotators name {twice} more than once; difficulty has one row per task and "
                "model: list each model once and raise its samples instead"
            )
        return self
