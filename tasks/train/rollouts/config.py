"""How far rollouts of strangers are believed."""

from pydantic import BaseModel, ConfigDict, Field

from tasks.validate.config import ValidateConfig


class TrustConfig(BaseModel):
    """The check of uploads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: ValidateConfig = Field(
        default=ValidateConfig(),
        description="Limits of the check by a prefill, and the share of uploads that is checked "
        "(check.audit). What needs no prefill is checked of every upload.",
    )
    calibrated_by: str = Field(
        "",
        description="Model whose calibration profile has the limits, by dtype and number of "
        "tokens: the one that training started from. A policy has no profile of its own, since "
        "its weights change with every step. Empty: the fixed limits of `check`.",
    )
