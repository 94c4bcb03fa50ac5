"""Where verification runs. Resources only: none of it may change a score."""

from pydantic import BaseModel, ConfigDict, Field


class VerifyConfig(BaseModel):
    """The Dask cluster that scores completions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: str = Field(
        "",
        description="Address of a Dask scheduler, for example tls://host:8786; empty starts a "
        "cluster on this machine.",
    )
    workers: int = Field(
        0, ge=0, le=1024, description="Local workers; 0 starts one for each core of this machine."
    )
    batch_rows: int = Field(32, ge=1, le=10_000, description="Completions scored in one Dask task.")
