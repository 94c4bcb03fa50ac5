"""Which nodes a run gets. Resources only: none of it may change a token."""

import os
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class WorkPoolNodes(BaseModel):
    """Nodes of our own that a Prefect work pool starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deployment: str = Field(
        description="Deployment of the flow serve-node, for example serve-node/gpu-2x640gb."
    )
    nodes: int = Field(ge=1, le=1000, description="Runs of it, each one node.")


class ProvisionConfig(BaseModel):
    """Local engine processes, or a pool's service and who works for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Local nodes; 0 starts one for each core of this machine.",
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Threads of one engine process. The same tokens are promised for the same "
        "number only.",
    )
    service: str = Field(
        default="",
        pattern=r"^(https?://.+)?$",
        description="URL of a pool's service with the run's storage root; empty: a private one "
        "with local nodes. The admin key comes with TRACEMILL_POOL_ADMIN_KEY.",
    )
    ca: str = Field(default="", description="File with the PEM of the service's own CA.")
    work_pools: tuple[WorkPoolNodes, ...] = Field(
        default=(), description="Our own nodes for that service, ended with the run."
    )
    ready_seconds: float = Field(
        default=1800.0, gt=0, le=86400.0, description="For nodes of work pools to come up."
    )
    strangers: bool = Field(
        default=False, description="Nodes that joined the service by themselves may generate."
    )
    topologies: tuple[str, ...] = Field(
        default=(), description="Shapes of group that fit the models, best first; none: any node."
    )

    @model_validator(mode="after")
    def _of_a_service(self) -> Self:
        given = [
            name for name in ("ca", "work_pools", "strangers", "topologies") if getattr(self, name)
        ]
        if given and not self.service:
            raise ValueError(
                f"{', '.join(given)} need a pool's service: set provision.service to its URL"
            )
        return self

    def node_count(self) -> int:
        """The number of local nodes on this machine."""
        if self.nodes:
            return self.nodes
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
