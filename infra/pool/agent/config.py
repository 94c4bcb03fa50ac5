"""How one agent behaves."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from infra.pool.agent.images import Images
from infra.pool.wire import P2pId


class AgentConfig(BaseModel):
    """One node of one pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://")
    invite: str = ""
    ca: Path | None = Field(default=None, description="PEM of the pool's own CA.")
    key_file: Path
    images: Images = Images()
    docker: bool = Field(default=False, description="Run other images as containers.")
    models: tuple[str, ...] = Field(default=(), description="On this machine's disk.")
    ip_address: str = Field(
        default="", description="How peers reach it; empty: what the pool sees."
    )
    port: int = 0
    p2p_id: P2pId = Field(default="", description="Empty: the one that follows from its seed.")
    work_dir: Path | None = Field(default=None, description="For what tasks write; else temporary.")
    idle_seconds: float = Field(default=0.0, ge=0, description="Leave after so long without work.")
