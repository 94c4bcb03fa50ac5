"""Limits of validation. They decide what is accepted, never what was generated."""

from pydantic import BaseModel, ConfigDict, Field

from toploc.sampling import SamplingLimits


class ValidateConfig(BaseModel):
    """How far a proof may be from our own computation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exp_mismatches: int = Field(
        38, ge=0, le=128, description="Exponents of 128 that may differ in a chunk (TOPLOC, T_exp)."
    )
    mant_err_mean: float = Field(
        10.0, ge=0.0, le=128.0, description="Mean mantissa error allowed in a chunk."
    )
    mant_err_median: float = Field(
        8.0, ge=0.0, le=128.0, description="Median mantissa error allowed in a chunk."
    )
    margin_mean: float = Field(
        SamplingLimits().mean_margin,
        gt=0.0,
        description="Mean margin allowed between a trace's tokens and those that its seed draws. "
        "The default is for float32 on both sides; half precision needs about 0.005.",
    )
    margin_over_share: float = Field(
        SamplingLimits().over_share,
        ge=0.0,
        le=1.0,
        description="Share of tokens allowed to be far from what the seed draws.",
    )
    logprob_error: float = Field(
        0.02,
        gt=0.0,
        description="Mean difference allowed between a trace's log-probabilities and ours.",
    )
    batch_size: int = Field(8, ge=1, le=1024, description="Traces checked in one prefill.")
