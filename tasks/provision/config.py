"""How many nodes a run gets. Resources only: none of it may change a token."""

import os

from pydantic import BaseModel, ConfigDict, Field


class ProvisionConfig(BaseModel):
    """Local engine processes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Engine processes; 0 starts one for each core of this machine.",
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Threads of one engine process. The same tokens are promised for the same "
        "number only.",
    )

    def node_count(self) -> int:
        """The number of nodes on this machine."""
        if self.nodes:
            return self.nodes
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
