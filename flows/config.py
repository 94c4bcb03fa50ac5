"""The config of a run: one section per stage. It is the form in the Prefect UI.

Invariants: frozen; an unknown key is an error that names the nearest known one; sections `storage`,
`provision` and `verify` are resources and change no row, the others decide the content.
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from data_contracts.ids import content_id
from tasks.annotate.config import AnnotateConfig, SftConfig
from tasks.collect.config import CollectConfig
from tasks.generate.config import GenerateConfig, ModelUse
from tasks.provision.config import ProvisionConfig
from tasks.publish.config import PublishConfig
from tasks.validate.config import ValidateConfig
from tasks.verify.config import VerifyConfig

RESOURCES = ("storage", "provision", "verify")


class StorageConfig(BaseModel):
    """Where runs and published datasets lie."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str = Field(
        "./data",
        min_length=1,
        description="Directory or fsspec URI (file://, s3://). Credentials come from the worker's "
        "environment.",
    )


class RunConfig(BaseModel):
    """Everything that decides what a run does."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True)

    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the run; every trace's own follows.")
    storage: StorageConfig = Field(
        default=StorageConfig(), description="Where runs and datasets lie."
    )
    provision: ProvisionConfig = Field(
        default=ProvisionConfig(), description="The nodes that generate and check."
    )
    generate: GenerateConfig = Field(description="The models and their samples.")
    # pydantic's BaseModel has a deprecated method `validate`, so the attribute needs another name.
    validation: ValidateConfig = Field(
        default=ValidateConfig(), alias="validate", description="Limits of the proofs."
    )
    verify: VerifyConfig = Field(
        default=VerifyConfig(), description="The cluster that scores answers."
    )
    annotate: AnnotateConfig = Field(
        default=AnnotateConfig(), description="From scores to difficulty."
    )
    sft: SftConfig = Field(default=SftConfig(), description="Which tasks the teacher answers.")
    publish: PublishConfig = Field(
        default=PublishConfig(), description="Name and rules of the dataset."
    )
    # Last, because its list of sources is the longest part of the form.
    collect: CollectConfig = Field(description="Where the tasks come from.")

    @model_validator(mode="after")
    def _scores_reachable(self) -> Self:
        most = max(use.samples for use in self.generate.annotators)
        if self.annotate.min_scored > most:
            raise ValueError(
                f"annotate.min_scored is {self.annotate.min_scored}, but no annotator draws more "
                f"than {most} samples, so no task would ever get a pass rate: lower min_scored or "
                "raise generate.annotators[].samples"
            )
        return self

    def uses(self, phase: str) -> list[ModelUse]:
        """The models of a phase: `annotators` or `teacher`."""
        return list(self.generate.annotators) if phase == "annotators" else [self.generate.teacher]

    def first_index(self, phase: str) -> dict[str, int]:
        """Model -> index of its first sample in a phase; the teacher's follow an annotator's."""
        if phase == "annotators":
            return {}
        return {use.model: use.samples for use in self.generate.annotators}

    def dump(self) -> dict[str, Any]:
        """Plain values, sections under the names that profiles use."""
        return self.model_dump(mode="json", by_alias=True)

    def content_hash(self) -> str:
        """Hash of the sections that decide the content."""
        dumped = self.dump()
        return content_id({key: dumped[key] for key in dumped if key not in RESOURCES})
