"""How one service is set up."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from infra.pool.core.requirements import Topology, named_topology
from infra.pool.core.state import Settings
from infra.pool.service.errors import BadSetting
from infra.pool.wire import MAX_UPLOAD_BYTES


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GroupConfig(_Part):
    """A named topology: an entry of the original's NODE_GROUP_CONFIGS."""

    name: str = Field(min_length=1, max_length=200)
    min_group_size: int
    max_group_size: int
    compute_requirements: str | None = None


class Webhook(_Part):
    """Where transitions are posted."""

    url: str = Field(pattern=r"^https?://")
    bearer_token: SecretStr | None = None


class Canary(_Part):
    """A shard whose result is known; every node does it before it is admitted."""

    image: str
    payload: dict[str, Any]
    expected: dict[str, Any] = Field(min_length=1)
    """What its output must contain, value by value."""


class ServiceSettings(_Part):
    """A file of `tracemill pool serve --settings`."""

    pool_id: str = Field(default="tracemill", max_length=100)
    url: str = Field(default="", description="How nodes reach the service; empty: as they did.")
    uploads: str = Field(
        default="uploads",
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$",
        max_length=200,
        description="Below the root nodes write here and nowhere else.",
    )
    topologies: list[GroupConfig] = []
    webhooks: list[Webhook] = []
    canary: Canary | None = None
    challenge: bool = Field(default=True, description="Nodes prove their compute; see README.")
    core: dict[str, float] = Field(
        default={}, description="Times of infra.pool.core.state.Settings that differ."
    )
    requests_per_minute: float = Field(default=100.0, gt=0, description="Of one node.")
    strangers_per_minute: float = Field(default=60.0, gt=0, description="Of one IP address.")
    uploads_per_hour: int = Field(default=600, ge=1, description="Of one node.")
    max_upload_bytes: int = Field(default=MAX_UPLOAD_BYTES, ge=1, le=MAX_UPLOAD_BYTES)
    head_seconds: float = Field(default=10.0, gt=0, description="For a request's head to arrive.")
    body_seconds: float = Field(default=20.0, gt=0, description="For a request to arrive.")
    tick_seconds: float = Field(default=1.0, gt=0)
    audit_seconds: float = Field(default=30.0, gt=0, description="Between looks at an object.")

    def core_settings(self) -> Settings:
        """The times that the core decides by."""
        try:
            return Settings(**self.core)  # type: ignore[arg-type]
        except TypeError as error:
            raise BadSetting(
                f"core settings {self.core}: {error}; known are {sorted(Settings.__slots__)}"
            ) from error

    def named_topologies(self) -> dict[str, Topology]:
        """The configured topologies by name; they come before what an `NxMGB` name says."""
        found: dict[str, Topology] = {}
        for config in self.topologies:
            if config.name in found:
                raise BadSetting(f"topology {config.name!r} is configured twice; rename one")
            found[config.name] = named_topology(
                config.name,
                config.min_group_size,
                config.max_group_size,
                config.compute_requirements or "",
            )
        return found
