"""Limits of validation. They decide what is accepted, never what was generated."""

from pydantic import BaseModel, ConfigDict, Field

from toploc.audit import AuditPolicy
from toploc.sampling import SamplingLimits


class AuditConfig(BaseModel):
    """Which shards are checked. A run whose nodes are all ours may check a part of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    floor: float = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="Least share of a node's shards that is checked, once its record is good. "
        "1 checks every shard. What is not checked is published only with "
        "publish.allow_unaudited.",
    )
    halving: int = Field(
        8, ge=1, description="Honest verdicts of a node after which half of its shards is checked."
    )

    def policy(self) -> AuditPolicy:
        """The same for the choice."""
        return AuditPolicy(self.floor, self.halving)


class ValidateConfig(BaseModel):
    """How far a proof may be from our own computation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calibrated: bool = Field(
        True,
        description="Judge by the calibration profile of a model where there is one; the limits "
        "below are for models without.",
    )
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
    audit: AuditConfig = Field(default=AuditConfig(), description="Which shards are checked.")
