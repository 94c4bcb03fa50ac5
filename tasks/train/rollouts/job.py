"""What a node is asked for: prompts, seeds and policy versions; what its upload is held against.

Invariants: everything that decides the samples of a job is in it, drawn before any node is chosen
(`tasks.train.rounds.plan`); a node is told prompts and seeds, never the run's seed or an answer.
Group numbers of a rollout step are unique within the step.
"""

import uuid
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from data_contracts.ids import MAX_SEED, content_id
from infra.pool import Job
from tasks.generate.config import SamplingConfig

KIND = "rollouts"
NO_TARGET = -1
"""Target length of a prompt that asks for none."""
HELD_OUT_SUFFIX = "/held-out"
"""Ends the run id of jobs for evaluation; no run's own id has a slash."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Group(_Frozen):
    """One prompt, and a sample for each seed."""

    group: int = Field(ge=0, description="Number within the rollout step.")
    task_id: str
    problem_id: str
    task_type: str
    prompt: str = Field(description="Text of the prompt, as the table shows it.")
    prompt_ids: list[int] = Field(min_length=1)
    target_length: int = Field(NO_TARGET, ge=-1, description="Asked output tokens; -1: none asked.")
    seeds: list[int] = Field(min_length=1)

    @model_validator(mode="after")
    def _seeds_fit(self) -> Self:
        if not all(0 <= seed <= MAX_SEED for seed in self.seeds):
            raise ValueError(f"a seed of group {self.group} is not in 0 to {MAX_SEED}")
        return self


class RolloutJob(_Frozen):
    """One job."""

    run_id: str
    step: int = Field(ge=0, description="Rollout step that the samples are for.")
    number: int = Field(ge=0, description="Number of the job within the step.")
    model: str = Field(description="Name of the policy.")
    least_version: int = Field(ge=0, description="Oldest policy version that may be used.")
    most_version: int = Field(ge=0, description="Newest policy version that may be used.")
    sampling: SamplingConfig
    batch_groups: int = Field(ge=1, description="Groups that are decoded together.")
    groups: list[Group] = Field(min_length=1)

    @property
    def name(self) -> str:
        """Name of the file of its rollouts, a UUID: the same job has the same."""
        return str(uuid.UUID(content_id([self.run_id, self.step, self.number])))

    def sample_id(self, group: int, sample: int) -> str:
        """Id of a sample: its place in the run."""
        place = {"run_id": self.run_id, "step": self.step, "group": group, "sample": sample}
        return content_id(place)

    @property
    def samples(self) -> int:
        """Samples of all groups."""
        return sum(len(group.seeds) for group in self.groups)


def is_held_out(job: RolloutJob) -> bool:
    """Whether a job is for evaluation."""
    return job.run_id.endswith(HELD_OUT_SUFFIX)


class Broadcast(_Frozen):
    """Where the policy's versions come from."""

    url: str
    stream: str
    publisher: str = Field(description="Node id whose signature manifests must have.")
    keep: int = Field(3, ge=1, description="Versions that stay on a node's disk.")
    wait_seconds: float = Field(
        600.0, gt=0.0, description="How long a node waits for a version that may be used."
    )


class Payload(_Frozen):
    """What a node gets."""

    broadcast: Broadcast
    job: RolloutJob


def rollout_job(job: RolloutJob, broadcast: Broadcast, attempt: int = 0) -> Job:
    """The job for a pool; another attempt has another id."""
    return Job(
        job_id=f"{job.run_id}-{job.step}-{job.number}-{attempt}",
        kind=KIND,
        payload=Payload(broadcast=broadcast, job=job).model_dump(),
        # What comes back is checked, whoever made it.
        stranger=True,
        like=job.model,
    )
