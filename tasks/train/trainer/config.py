"""Settings of the RL trainer."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

FREE = {"checkpoint_every", "keep", "micro_batch_tokens", "head_rows", "peak_tflops"}
"""Settings of `TrainerConfig` that may change from one start of a run to the next: they decide what
a step needs, not what it computes, but for the rounding of sums that are cut in other places."""


class LoraSettings(BaseModel):
    """Low-rank adapters (arXiv 2106.09685) instead of all weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(16, ge=1, le=1024, description="Rank of the adapters.")
    alpha: float = Field(32.0, gt=0.0, description="The adapter's product is scaled by alpha/rank.")
    targets: tuple[str, ...] | None = Field(
        None,
        description="Names of the layers that get an adapter; empty means all linear layers but "
        "the head.",
    )
    save: Literal["merged", "adapter"] = Field(
        "merged",
        description="A policy version is the merged model, or the adapter alone in peft's files.",
    )


class TrainerConfig(BaseModel):
    """How the policy is trained; the defaults are those of INTELLECT-2 where it names one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(
        3e-7, gt=0.0, description="AdamW's rate after warm-up. Nano models need 1e-4 to 5e-4."
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="After warm-up: constant, or down to zero at total_steps."
    )
    warmup_steps: int = Field(25, ge=0, description="Optimizer steps of linear warm-up.")
    total_steps: int | None = Field(
        None, ge=1, description="Optimizer steps of the whole run; linear and cosine need it."
    )
    betas: tuple[float, float] = Field((0.9, 0.99), description="AdamW's decay rates.")
    epsilon: float = Field(1e-8, gt=0.0, description="AdamW's epsilon.")
    weight_decay: float = Field(
        0.01, ge=0.0, description="AdamW's decay of matrices; norms and biases do not decay."
    )
    max_grad_norm: float = Field(
        0.1, gt=0.0, description="Gradients are scaled down to this global norm."
    )
    optimizer_steps: int = Field(
        8,
        ge=1,
        description="Optimizer steps in a rollout step: its samples are dealt to as many "
        "minibatches. With 1 the old log-probabilities need no pass of their own.",
    )
    micro_batch_tokens: int = Field(
        8192,
        ge=16,
        description="Packed tokens in one forward pass; bounds the memory, changes no result "
        "beyond rounding.",
    )
    head_rows: int = Field(
        2048, ge=16, description="Rows whose logits exist at once; bounds the head's memory."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="What the forward pass computes in, and what a policy version is saved in. "
        "Master weights, gradients over ranks and the optimizer are float32.",
    )
    activation_checkpointing: bool = Field(
        False, description="Compute a layer's activations again in the backward pass."
    )
    peak_tflops: float | None = Field(
        None, gt=0.0, description="What one device can do at most; with it perf/mfu is reported."
    )
    lora: LoraSettings | None = Field(None, description="Train adapters instead of all weights.")
    checkpoint_every: int = Field(
        1,
        ge=1,
        description="Rollout steps from checkpoint to checkpoint. With 1 no step whose weights are "
        "out is ever trained again; with more, replayed steps repeat bit by bit on CPUs only.",
    )
    keep: int = Field(2, ge=1, description="Checkpoints that are kept.")

    @model_validator(mode="after")
    def _schedule_ends(self) -> Self:
        if self.schedule != "constant" and self.total_steps is None:
            raise ValueError(
                f"schedule is {self.schedule}, but total_steps is not given: name the optimizer "
                "steps of the run or use schedule = constant"
            )
        return self
