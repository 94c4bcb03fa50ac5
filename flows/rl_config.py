"""The config of RL rounds: what is trained, on which tasks, how. It is the form in the Prefect UI.

Invariants: frozen; an unknown key is an error that names the nearest known one; sections `storage`,
`provision`, `origin` and `machine` are resources, the others decide what is trained on; what cannot
work is refused here, before anything is started.
"""

from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flows.config import StorageConfig
from infra.broadcast.hosts import is_loopback
from tasks.generate.config import SamplingConfig
from tasks.provision.config import ProvisionConfig
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rounds.config import OriginConfig, RoundsConfig
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.tasks import TaskChoice
from tasks.train.rounds.trainer_process import TrainerResources
from tasks.train.trainer import TrainerConfig

RESOURCES = frozenset({"storage", "provision", "origin", "machine"})
"""Sections that a run may change from one start to the next."""


class RlConfig(BaseModel):
    """Everything that decides what the rounds do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the rounds; all others follow.")
    model: str = Field(
        min_length=1,
        description="The start policy (version 0): a registered model id, or a local directory.",
    )
    storage: StorageConfig = Field(
        default=StorageConfig(),
        description="Where the run lies. The trainer needs a file system that it shares with the "
        "flow.",
    )
    provision: ProvisionConfig = Field(
        default=ProvisionConfig(), description="The nodes that generate rollouts."
    )
    origin: OriginConfig = Field(
        default=OriginConfig(), description="Where those nodes get the policy's versions from."
    )
    machine: TrainerResources = Field(
        default=TrainerResources(), description="Processes and threads of the trainer."
    )
    tasks: TaskChoice = Field(default=TaskChoice(), description="Tasks of a published rl split.")
    sampling: SamplingConfig = Field(
        default=SamplingConfig(), description="How tokens of rollouts are drawn."
    )
    rounds: RoundsConfig = Field(
        default=RoundsConfig(), description="Steps, batches and staleness."
    )
    lengths: LengthConfig = Field(
        default=LengthConfig(), description="Length targets, and samples cut at the limit."
    )
    objective: ObjectiveConfig = Field(
        default=ObjectiveConfig(), description="Advantages and the policy loss."
    )
    trust: TrustConfig = Field(
        default=TrustConfig(), description="How uploads of nodes are checked."
    )
    trainer: TrainerConfig = Field(default=TrainerConfig(), description="The optimizer.")
    evaluation: EvaluationConfig = Field(
        default=EvaluationConfig(), description="Held-out figures along the way."
    )

    @model_validator(mode="after")
    def _can_learn(self) -> Self:
        if self.sampling.temperature == 0.0:
            raise ValueError(
                "sampling.temperature is 0, so all samples of a group would be the same and "
                "nothing could be learned: set it above 0, usually 1"
            )
        return self

    @model_validator(mode="after")
    def _nodes_reach_what_they_need(self) -> Self:
        protocol, bar, _ = self.storage.root.partition("://")
        if bar and protocol != "file":
            raise ValueError(
                f"storage.root is {self.storage.root}; the trainer works on a file system that it "
                "shares with the flow and the nodes that check: give a directory"
            )
        service = self.provision.service
        elsewhere = service and not is_loopback(urlsplit(service).hostname or "")
        if elsewhere and self.origin.here_only():
            raise ValueError(
                f"the nodes of provision.service ({service}) are on other machines, and the "
                "policy's versions would be served on loopback alone: set origin.host, origin.port "
                "and, where nodes know this machine by another name, origin.url"
            )
        return self

    @model_validator(mode="after")
    def _trains_what_is_sampled(self) -> Self:
        if self.sampling.max_tokens >= self.trainer.micro_batch_tokens:
            raise ValueError(
                f"sampling.max_tokens is {self.sampling.max_tokens}, and prompt and answer "
                "together have to fit into trainer.micro_batch_tokens = "
                f"{self.trainer.micro_batch_tokens}: raise that, or sample fewer tokens"
            )
        trained, group = self.objective.trained_samples, self.rounds.group_size
        if trained is not None and trained > group:
            raise ValueError(
                f"objective.trained_samples is {trained}, and rounds.group_size = {group} is all "
                "that there is of a group: lower it, or leave it out to train on all"
            )
        limit = self.sampling.max_tokens
        if self.lengths.overlong == "penalty" and self.lengths.overlong_cache > limit:
            raise ValueError(
                f"lengths.overlong_cache is {self.lengths.overlong_cache}, above "
                f"sampling.max_tokens = {limit}, where the penalty ends: lower it"
            )
        if max(self.lengths.targets, default=0) > limit:
            raise ValueError(
                f"lengths.targets go up to {max(self.lengths.targets)} tokens, and "
                f"sampling.max_tokens = {limit} cuts every answer there: raise that"
            )
        sampled = self.sampling
        filtered = sampled.top_p < 1 or sampled.top_k > 0 or sampled.min_p > 0
        if filtered and self.objective.correction == "geometric":
            raise ValueError(
                "objective.correction is 'geometric', and with sampling.top_p, top_k or min_p the "
                "nodes' log-probabilities are those of the tokens that are kept, which would drop "
                "nearly all samples: sample without them, or set it to 'tis'"
            )
        last = self.rounds.steps * self.trainer.optimizer_steps
        total = self.trainer.total_steps
        if self.trainer.schedule != "constant" and total is not None and total < last:
            raise ValueError(
                f"trainer.total_steps is {total}, and rounds.steps x trainer.optimizer_steps is "
                f"{last}: the learning rate would be 0 before the end; set it to {last} or more"
            )
        lora = self.trainer.lora
        if lora is not None and lora.save == "adapter":
            raise ValueError(
                "trainer.lora.save is 'adapter', and nodes load whole models: set it to 'merged'"
            )
        return self

    def dump(self) -> dict[str, Any]:
        """Plain values that give this config again; None is left out, as TOML has no null."""
        values: dict[str, Any] = _without_none(self.model_dump(mode="json"))
        return values


def _without_none(value: Any) -> Any:
    # pydantic's own exclude_none also drops what has a written form for None
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list) else value
