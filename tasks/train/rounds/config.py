"""How the rounds go: their number, the batch of a step, how far rollouts may lag behind.

And where nodes get the policy's versions from.
"""

from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from infra.broadcast.hosts import is_loopback


class RoundsConfig(BaseModel):
    """Rollout steps and their batches. Every field changes what is trained on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(100, ge=1, description="Rollout steps; each makes one policy version.")
    staleness: int = Field(
        2,
        ge=0,
        le=64,
        description="How many versions old the policy of a step's rollouts may be. 0 waits for "
        "each version before it generates (synchronous, and reproducible).",
    )
    group_size: int = Field(16, ge=2, le=1024, description="Samples of one task in a group.")
    groups_per_job: int = Field(
        8, ge=1, le=4096, description="Groups that a node generates, decoded together."
    )
    groups_per_step: int = Field(
        16,
        ge=1,
        le=65536,
        description="Groups with a spread of rewards that a step trains on at least; more jobs "
        "are given out until it has them. A job counts whole, so there may be a few more.",
    )
    max_jobs_per_step: int = Field(
        64, ge=1, le=65536, description="Jobs after which a step that is not full ends the run."
    )
    tries: int = Field(
        8,
        ge=1,
        le=1000,
        description="Times that a job is lost with its nodes, or its check crashes, before the run "
        "gives it up. Refused uploads do not count.",
    )
    backup_seconds: float = Field(
        60.0,
        gt=0.0,
        description="A job that takes this long, and four times as long as the others, is given to "
        "a second node as well; the first good answer counts.",
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        most = self.max_jobs_per_step * self.groups_per_job
        if most < self.groups_per_step:
            raise ValueError(
                f"max_jobs_per_step x groups_per_job is {most}, below groups_per_step = "
                f"{self.groups_per_step}, so no step could ever be full: raise max_jobs_per_step"
            )
        return self

    def versions(self, step: int) -> tuple[int, int]:
        """Oldest and newest policy version whose rollouts a step may train on.

        Step N trains version N - 1, so rollouts of version v are N - 1 - v versions behind.
        """
        return max(0, step - 1 - self.staleness), step - 1


class OriginConfig(BaseModel):
    """Where this process serves policy versions, and what nodes call it. Resources only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen at. Off loopback the origin and all nodes need the same "
        "TRACEMILL_BROADCAST_TOKEN in their environment.",
    )
    port: int = Field(0, ge=0, le=65535, description="Port; 0 takes a free one.")
    url: str = Field(
        "",
        pattern=r"^(https?://[^/]+.*)?$",
        description="URL by which nodes reach it, for example behind a proxy; empty: its address.",
    )

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.url and not self.port:
            raise ValueError("url names a fixed place, so it needs a fixed port: set port")
        if not self.url and _any_address(self.host):
            raise ValueError(
                f"host {self.host} is every address of this machine, and nodes need one of them: "
                "set url, for example http://ADDRESS:PORT"
            )
        return self

    def here_only(self) -> bool:
        """Whether only nodes on this machine can reach it."""
        return is_loopback(urlsplit(self.url).hostname or "" if self.url else self.host)


def _any_address(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
