"""Options of the objective and of length rewards.

Invariant: a combination that cannot mean anything is refused here, so the formulas never see it.
Defaults are those of INTELLECT-2 (arXiv 2505.07291, section 4.1) where it names a value.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

Advantage = Literal["std", "batch_std", "none", "intellect2"]
Correction = Literal["none", "tis", "icepop", "geometric"]
Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum"]
LengthReward = Literal["none", "exact", "max", "clip"]
Overlong = Literal["keep", "mask", "penalty"]


def _number_or_none(value: Any) -> Any:
    return None if value == "none" else value


def _written(value: float | None) -> float | str:
    return "none" if value is None else value


OrNone = Annotated[
    float | None,
    BeforeValidator(_number_or_none),
    PlainSerializer(_written, return_type=float | str, when_used="json"),
]
"""A bound that has a default and may be absent, which is written "none", as TOML has no null."""


class ObjectiveConfig(BaseModel):
    """The policy loss and the advantages that it is weighted with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    advantage: Advantage = Field(
        default="intellect2",
        description="How rewards of a group become advantages, always less the group's mean. "
        "std: over the group's standard deviation. batch_std: over that of the whole batch. none: "
        "not divided. intellect2: over the group's standard deviation plus 1e-6.",
    )
    trained_samples: int | None = Field(
        default=None,
        ge=2,
        description="Samples of a group that are trained on, with advantages among themselves: "
        "those whose rewards differ most. All are generated and scored, so the step costs less "
        "and keeps what there is to learn. Not given: all.",
    )
    clip_low: float = Field(
        default=0.2,
        ge=0.0,
        lt=1.0,
        description="Lower clip: the ratio counts as at least 1 - clip_low.",
    )
    clip_high: float = Field(
        default=0.2,
        ge=0.0,
        description="Upper clip: the ratio counts as at most 1 + clip_high for good samples.",
    )
    delta: OrNone = Field(
        default=4.0,
        description="Two-sided clip: the highest ratio that counts for bad samples. Must be above "
        '1 + clip_high. "none": no such bound (plain PPO).',
    )
    kl_coef: float = Field(
        default=0.001,
        ge=0.0,
        description="Weight of the divergence from the reference policy. Above 0 the loss needs "
        "the reference's log-probabilities.",
    )
    kl_unbiased: bool = Field(
        default=True,
        description="Weight the divergence of a token by the current ratio, with gradient: its "
        "gradient is then that of KL(policy || reference) without bias. Otherwise it is plain k3.",
    )
    entropy_coef: float = Field(
        default=0.0,
        ge=0.0,
        description="Weight of the entropy bonus. Above 0 the loss needs entropies with gradient.",
    )
    correction: Correction = Field(
        default="tis",
        description="What is done about rollouts whose policy (engine, precision, older weights) "
        "differs from the trainer's at the start of the step. tis: weight each token by the "
        "ratio, at most ratio_high. icepop: the same, but a token outside [ratio_low, ratio_high] "
        "is left out. geometric: a sequence whose geometric mean ratio lies outside "
        "[sequence_low, sequence_high], or with a token outside [outlier_low, outlier_high], is "
        "left out; no weights. none: nothing.",
    )
    ratio_low: float = Field(
        default=0.5, gt=0.0, le=1.0, description="Lowest token ratio that icepop keeps."
    )
    ratio_high: float = Field(
        default=2.0, ge=1.0, description="Cap of tis; highest token ratio that icepop keeps."
    )
    sequence_low: float = Field(
        default=0.99, gt=0.0, le=1.0, description="Lowest geometric mean ratio that is kept."
    )
    sequence_high: float = Field(
        default=1.01, ge=1.0, description="Highest geometric mean ratio that is kept."
    )
    outlier_low: float = Field(
        default=1e-4, gt=0.0, lt=1.0, description="A token ratio below drops its sequence."
    )
    outlier_high: float = Field(
        default=100.0, gt=1.0, description="A token ratio above drops its sequence."
    )
    aggregation: Aggregation = Field(
        default="token_mean",
        description="How token losses become one number. token_mean: mean over all loss tokens of "
        "the optimizer step. sequence_mean: mean over sequences of their token means. "
        "sequence_sum: mean over sequences of their token sums.",
    )

    @model_validator(mode="after")
    def _delta_above_clip(self) -> Self:
        if self.delta is not None and self.delta <= 1 + self.clip_high:
            raise ValueError(
                f"delta = {self.delta:g} must be above 1 + clip_high = {1 + self.clip_high:g}, or "
                "good samples would be clipped by it. Raise delta, lower clip_high, or set delta "
                'to "none".'
            )
        return self


class LengthConfig(BaseModel):
    """Length targets in prompts, what missing them costs, and samples that hit the limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reward: LengthReward = Field(
        default="none",
        description="none: no targets. exact: minus alpha for each token away from the target. "
        "max: times clip(alpha * (target - tokens) + 0.5, 0, 1). clip: times 0 above the target.",
    )
    targets: tuple[int, ...] = Field(
        default=(),
        description="The discrete targets, in output tokens; each prompt draws one for its group.",
    )
    instruction: str = Field(
        default=" Think for {target} tokens before giving a response.",
        description="Follows the task's text; {target} becomes the number of tokens.",
    )
    alpha: float = Field(default=3e-4, gt=0.0, description="Cost of one token (exact, max).")
    overlong: Overlong = Field(
        default="keep",
        description="Samples cut at the token limit. keep: trained as any other. mask: they count "
        "in the group's statistics but carry no loss. penalty: the reward falls linearly to -1 "
        "over the last overlong_cache tokens below the limit.",
    )
    overlong_cache: int = Field(
        default=0, ge=0, description="Tokens below the limit where the penalty starts."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.reward == "none") != (not self.targets):
            raise ValueError(
                f"reward = {self.reward!r} with targets = {list(self.targets)}: targets belong to "
                "a length reward and it needs at least one. Set both or neither."
            )
        if any(target < 1 for target in self.targets):
            raise ValueError(f"targets = {list(self.targets)}: each must be 1 or more.")
        if "{target}" not in self.instruction:
            raise ValueError(f"instruction = {self.instruction!r} has no {{target}}. Add it.")
        if (self.overlong == "penalty") != (self.overlong_cache > 0):
            raise ValueError(
                f"overlong = {self.overlong!r} with overlong_cache = {self.overlong_cache}: the "
                "cache belongs to the penalty, which needs one of 1 or more. Set both or neither."
            )
        return self


class DifficultyRange(BaseModel):
    """Solve rates of the tasks that are sampled; both ends included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: OrNone = Field(
        default=0.125, ge=0.0, le=1.0, description='Lowest solve rate; "none": no lower bound.'
    )
    maximum: OrNone = Field(
        default=0.5, ge=0.0, le=1.0, description='Highest solve rate; "none": no upper bound.'
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(
                f"minimum = {self.minimum:g} is above maximum = {self.maximum:g}: no task could be "
                "kept. Exchange them."
            )
        return self
