"""Tasks, and where their nodes put what they make; invites."""

from pydantic import ConfigDict, Field

from infra.pool.wire.base import Answer, Id, Said, Sha256, ShortText


class UploadRequest(Said):
    """Body of POST /storage/request-upload."""

    file_name: str = Field(min_length=1, max_length=200)
    file_size: int = Field(ge=0)
    file_type: str = Field(default="application/octet-stream", max_length=100)
    sha256: Sha256
    task_id: Id
    shard_id: ShortText = ""


class UploadGrant(Answer):
    """Where to PUT the bytes, once, within the hour."""

    signed_url: str
    headers: dict[str, str]
    """To be sent with the PUT as they are."""
    file_name: str
    """Path of the object below the storage root."""


class VolumeMount(Said):
    """A directory of the node inside the container."""

    host_path: str = Field(min_length=1, max_length=500)
    container_path: str = Field(min_length=1, max_length=500)


class NodeGroupsPlugin(Said):
    """Shapes of group that a task can use, best first."""

    allowed_topologies: list[ShortText] = Field(min_length=1, max_length=32)


class Plugins(Said):
    """There is one."""

    node_groups: NodeGroupsPlugin | None = None


class SchedulingConfig(Said):
    """Who gets the task, and before whom."""

    plugins: Plugins = Field(default_factory=Plugins)
    priority: int = Field(default=0, ge=-1000, le=1000)
    """Higher goes first."""
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Share among tasks of one priority."""


class StorageConfig(Said):
    """How uploads of the task are named."""

    file_name_template: str | None = Field(default=None, max_length=500)


class TaskMetadata(Said):
    """Labels for people; `model` names the weights that the task loads."""

    labels: dict[ShortText, ShortText] | None = Field(default=None, max_length=64)


class TaskRequest(Said):
    """Body of POST /tasks."""

    name: str = Field(min_length=1, max_length=200)
    image: str = Field(min_length=1, max_length=500)
    env_vars: dict[str, str] | None = Field(default=None, max_length=256)
    cmd: list[str] | None = Field(default=None, max_length=256)
    entrypoint: list[str] | None = Field(default=None, max_length=64)
    scheduling_config: SchedulingConfig | None = None
    storage_config: StorageConfig | None = None
    metadata: TaskMetadata | None = None
    volume_mounts: list[VolumeMount] | None = Field(default=None, max_length=32)
    sharded: bool = False
    """Its work is shards that are added to it; else it runs until it is deleted."""
    trusted: bool = False
    """For nodes only that joined with an invite for trusted ones."""
    owner_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Deleted when nobody has asked for its results for so long; 0: kept."""


class TaskView(TaskRequest):
    """A task as it is listed."""

    model_config = ConfigDict(extra="ignore")

    id: str
    state: str = "PENDING"
    created_at: int
    """Milliseconds since 1970."""
    updated_at: int | None = None
    open_shards: int = 0
    stopped: str = ""
    """Why it is not scheduled any more."""


class TaskAnswer(Answer):
    """Answer to POST /tasks."""

    task: TaskView


class InviteRequest(Said):
    """Body of POST /invites."""

    uses: int = Field(default=1, ge=1, le=100_000)
    """Nodes that may join with it."""
    seconds: float = Field(default=86400.0, gt=0, le=90 * 86400.0)
    label: ShortText = ""
    trusted: bool = False
    """For our own machines: they get the work that decides about others."""


class Invite(Answer):
    """Answer to POST /invites; the key is shown this once."""

    invite: str
    invite_id: str
    expires_at: float
