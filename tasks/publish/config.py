"""Options of the publish stage.

Invariant: an option changes what is published or how it is described, never what was measured.
"""

from pydantic import BaseModel, ConfigDict, Field


class PublishConfig(BaseModel):
    """Name and rules of the published dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        default="tracemill",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Folder of the dataset below published/.",
    )
    pretty_name: str = Field(
        default="Tracemill reasoning traces",
        min_length=1,
        max_length=120,
        description="Title on the dataset card.",
    )
    license: str = Field(
        default="apache-2.0",
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
        description="License identifier as the Hugging Face hub writes it, for example apache-2.0.",
    )
    allow_unaudited: bool = Field(
        default=False,
        description="Also publish traces that came from an audited node but were not checked one "
        "by one.",
    )
    rows_per_file: int = Field(
        default=50_000, ge=1, description="Rows of one parquet file at most."
    )
