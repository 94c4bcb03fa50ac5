"""What goes over the wire between the pool's service, its nodes and its users.

Both sides import these models; names and defaults of the original service's fields are kept, what
it lacks is added. Invariants: unknown fields are refused, but in answers, so that an old node can
talk to a newer service; every text and list has a limit; a float is finite.

Node-signed routes (infra/pool/signature.py says how):

    PUT  /nodes                     RegisterRequest  -> Registration
    POST /nodes/challenge                            -> ChallengeOffer     the clock starts
    POST /nodes/challenge/commit    ChallengeCommit  -> ChallengeReveal    the clock stops
    POST /nodes/challenge/answer    ChallengeAnswer  -> Admission
    POST /nodes/canary              CanaryResult     -> Admission
    POST /nodes/orders/{order_id}   OrderAnswer      -> Done
    POST /nodes/leave                                -> Done               after the shard in hand
    POST /nodes/gone                                 -> Done               at once
    POST /heartbeat                 Heartbeat        -> HeartbeatAnswer
    GET  /shards/{shard_id}                          -> ShardWork          only with its lease
    POST /shards/{shard_id}/result  ShardResult      -> Done
    POST /shards/{shard_id}/failure ShardFailure     -> Done
    POST /storage/request-upload    UploadRequest    -> UploadGrant
    PUT  <signed_url of the grant>  the bytes, with the grant's headers; no signature of the node

Admin routes, `Authorization: Bearer <admin key>`:

    GET, POST /tasks      DELETE /tasks/{id}, /tasks/all
    POST /tasks/{id}/shards         ShardsRequest    -> Done
    GET  /tasks/{id}/results?after=N&wait_seconds=S  -> Results            long poll
    POST /shards/{shard_id}/verdict Verdict          -> Done
    POST /shards/{shard_id}/drop                     -> Done               if nobody has it yet
    GET, POST, DELETE /invites      InviteRequest    -> Invite
    GET  /nodes   POST /nodes/{id}/ban, /eject, /restart   GET /nodes/{id}/logs, /metrics
    GET  /groups, /groups/configs, /groups/{id}/logs  DELETE /groups/{id}
    POST /groups/force-regroup
    GET  /metrics, /metrics/all, /metrics/prometheus  POST /metrics  DELETE /metrics/{task_id}
    GET, POST /ledger

Open: GET /health, /epoch, /docs, /api-docs/openapi.json. Errors are `{"success": false, "error",
"code"}` with 400, 401, 403, 404, 408, 409, 413, 429 (with Retry-After) or 503.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from infra.pool.challenge import Challenge, Opening

MAX_BODY_BYTES = 2 << 20
MAX_UPLOAD_BYTES = 100 << 20
UPLOADS = "uploads"
"""Below the storage root nodes write here and nowhere else."""

NodeId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ShortText = Annotated[str, StringConstraints(max_length=200)]
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+=-]{0,199}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _sendable(found: dict[str, Any]) -> dict[str, Any]:
    """Refuse what is no JSON elsewhere: NaN, infinities, half surrogate pairs."""
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    return found


JsonObject = Annotated[dict[str, Any], AfterValidator(_sendable)]


class Said(BaseModel):
    """What comes to the service."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """What the service tells."""

    model_config = ConfigDict(extra="ignore")


class Answer(Shown):
    """What the service answers with."""

    success: bool = True


class Done(Answer):
    """Nothing more to say."""


# Nodes


class GpuSpecs(Said):
    """Cards of a node; memory is per card."""

    count: int = Field(default=0, ge=0, le=1024)
    model: ShortText = ""
    memory_mb: int = Field(default=0, ge=0, le=10_000_000)
    indices: list[int] | None = Field(default=None, max_length=1024)


class CpuSpecs(Said):
    """Processor of a node."""

    cores: int = Field(default=0, ge=0, le=65536)
    model: ShortText = ""


class ComputeSpecs(Said):
    """What a node says it has."""

    gpu: GpuSpecs | None = None
    cpu: CpuSpecs | None = None
    ram_mb: int = Field(default=0, ge=0, le=1_000_000_000)
    storage_gb: int = Field(default=0, ge=0, le=10_000_000)
    storage_path: ShortText = ""


class Location(Said):
    """Where a node says it is, in degrees."""

    latitude: float = Field(ge=-90, le=90)
    longitude: float = Field(ge=-180, le=180)
    city: ShortText | None = None
    region: ShortText | None = None
    country: ShortText | None = None


class RegisterRequest(Said):
    """Body of PUT /nodes: at the first start with an invite, at each later start without."""

    id: NodeId
    invite: str = Field(default="", max_length=200)
    ip_address: str = Field(default="", max_length=64)
    """How peers reach it; empty: what the service sees."""
    port: int = Field(default=0, ge=0, le=65535)
    compute_specs: ComputeSpecs = Field(default_factory=ComputeSpecs)
    location: Location | None = None
    worker_p2p_id: str = Field(default="", max_length=200)
    worker_p2p_addresses: list[ShortText] = Field(default_factory=list, max_length=16)
    models: list[ShortText] = Field(default_factory=list, max_length=256)
    """Models on its disk."""
    version: ShortText = ""


class Registration(Answer):
    """Answer to PUT /nodes."""

    state: str
    challenge: bool
    """The node has to prove its compute: POST /nodes/challenge next."""
    heartbeat_seconds: float
    certificate: str = ""
    """PEM: the pool's CA signed it for the node's own key; for links between peers."""
    ca: str = ""
    """PEM of the pool's CA."""


class ChallengeOffer(Answer):
    """Multiply; see infra/pool/challenge.py."""

    challenge_id: str
    challenge: Challenge


class ChallengeCommit(Said):
    """The root over the rows of the product, before it is known what will be asked."""

    challenge_id: Id
    root: Sha256


class ChallengeReveal(Answer):
    """What the node has to show of the product."""

    challenge_id: str
    rows: list[int]
    """Rows to open."""


class ChallengeAnswer(Said):
    """The opened rows, in the order asked for."""

    challenge_id: Id
    openings: list[Opening] = Field(max_length=64)


class CanaryResult(Said):
    """What the node made of the canary shard."""

    output: JsonObject


class Admission(Answer):
    """Where the node stands with its admission."""

    passed: bool
    reason: str = ""
    canary: "CanaryWork | None" = None
    """Next: do this and POST /nodes/canary; None: admitted, or refused."""


class MetricKey(Said):
    """Of what a figure is."""

    task_id: str = Field(default="", max_length=100)
    label: str = Field(min_length=1, max_length=200)


class Metric(Said):
    """A figure that a node reports, of itself (`system/...`) or of its task."""

    key: MetricKey
    value: Finite


class TaskDetails(Said):
    """The container of a task."""

    docker_image_id: ShortText | None = None
    container_id: ShortText | None = None
    container_status: ShortText | None = None
    container_created_at: int | None = None
    container_exit_code: int | None = None


TaskState = Literal[
    "PENDING", "PULLING", "RUNNING", "COMPLETED", "FAILED", "PAUSED", "RESTARTING", "UNKNOWN"
]


class Heartbeat(Said):
    """Body of POST /heartbeat, every `heartbeat_seconds`."""

    address: NodeId
    version: ShortText | None = None
    timestamp: int | None = None
    p2p_id: ShortText | None = None
    task_id: ShortText | None = None
    task_state: TaskState | None = None
    task_details: TaskDetails | None = None
    metrics: list[Metric] | None = Field(default=None, max_length=512)
    """Replaces what the node reported before; None leaves it as it was."""
    group_id: ShortText = ""
    group_version: int = -1
    """Version of the group for which the node is ready to work; -1: not ready."""
    shard_id: ShortText = ""
    progress: Finite = 0.0
    """Share of the shard that is done; a lease without progress is taken back."""
    models: list[ShortText] | None = Field(default=None, max_length=256)
    rtt_ms: dict[NodeId, Finite] = Field(default_factory=dict, max_length=64)
    lost_peers: list[NodeId] = Field(default_factory=list, max_length=64)
    standing_by: bool = False
    wait_seconds: float = Field(default=0.0, ge=0, le=30)
    """Hold the answer back so long, unless it is another one than that of the etag `seen`. The beat
    itself counts when it arrives."""
    seen: ShortText = ""


class Peer(Shown):
    """A member of the node's group."""

    node_id: str
    p2p_id: str
    p2p_addresses: list[str]
    address: str
    """ip:port."""


class GroupView(Shown):
    """The node's group and its place in it."""

    group_id: str
    version: int
    index: int
    size: int
    task_id: str
    members: list[Peer]
    """By rank."""


class Order(Shown):
    """Something that the operator wants; answered with POST /nodes/orders/{order_id}."""

    order_id: str
    kind: Literal["restart", "logs"]


class Assignment(Shown):
    """A task as this node has to run it: what the service substitutes is substituted.

    `${WORKER_P2P_SEED}` and `${SOCKET_PATH}` are left for the node. It stays the same, word for
    word, for one version of a group.
    """

    id: str
    name: str
    image: str
    env_vars: dict[str, str]
    cmd: list[str] | None
    entrypoint: list[str] | None
    volume_mounts: list["VolumeMount"]
    sharded: bool
    """Work comes as shards; else the task is the process itself."""


class HeartbeatData(Shown):
    """What the node has to do now; the same until it changes."""

    current_task: Assignment | None = None
    group: GroupView | None = None
    shard_id: str = ""
    """The shard that its group has a lease on: GET /shards/{shard_id}, unless it is at it."""
    leased_at: float = 0.0
    """Tells a second lease on the same shard from the first."""
    standby: tuple[str, int, int] | None = None
    """(model, rank, group size) to keep loaded while it has no group."""
    orders: list[Order] = Field(default_factory=list)
    register_again: bool = False
    """The service wants the node to register and prove itself anew."""
    leaving: bool = False


class HeartbeatAnswer(Answer):
    """Answer to POST /heartbeat."""

    data: HeartbeatData
    etag: str = ""
    """Names `data`."""


class OrderAnswer(Said):
    """What came of an order."""

    text: str = Field(default="", max_length=1 << 20)


# Shards


class StoredFile(Said):
    """An object that a node uploaded."""

    name: str = Field(min_length=1, max_length=512)
    """`file_name` of the grant: its path below the storage root."""
    sha256: Sha256
    size: int = Field(ge=0, le=MAX_UPLOAD_BYTES)


class ShardWork(Answer):
    """A shard as a node gets it."""

    shard_id: str
    task_id: str
    payload: dict[str, Any]


class CanaryWork(ShardWork):
    """A shard whose result is known, and the image that it is for."""

    image: str


class ShardResult(Said):
    """Body of POST /shards/{shard_id}/result; the service looks at the objects themselves."""

    group_id: Id
    output: JsonObject = Field(default_factory=dict)
    files: list[StoredFile] = Field(default_factory=list, max_length=64)
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class ShardFailure(Said):
    """Body of POST /shards/{shard_id}/failure. cause: whose fault it is."""

    group_id: Id
    cause: Literal["user", "infra", "config"]
    kind: ShortText = ""
    reason: str = Field(default="", max_length=2000)


class NewShard(Said):
    """One piece of work of a task."""

    shard_id: Id
    payload: JsonObject = Field(default_factory=dict)
    kind: ShortText = ""
    """Shards of one kind take about the same time."""
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    """Lower goes first within the task."""


class ShardsRequest(Said):
    """Body of POST /tasks/{id}/shards; shards that are known are skipped."""

    shards: list[NewShard] = Field(min_length=1, max_length=1000)


class ResultRow(Shown):
    """How a shard came out of one group's hands, or ended."""

    seq: int
    shard_id: str
    state: Literal["submitted", "done", "failed", "stopped"]
    """submitted: a verdict is wanted; done: accepted; failed: given up; stopped: the task is not
    scheduled any more (its `shard_id` is empty)."""
    group_id: str = ""
    node_ids: list[str] = Field(default_factory=list)
    """The group's members by rank, when it submitted."""
    node_id: str = ""
    """Who reported."""
    output: dict[str, Any] = Field(default_factory=dict)
    files: list[StoredFile] = Field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""


class Results(Answer):
    """Answer to GET /tasks/{id}/results: rows with a `seq` above `after`, in order."""

    results: list[ResultRow]


class Verdict(Said):
    """Body of POST /shards/{shard_id}/verdict."""

    group_id: Id
    accepted: bool
    final: bool = False
    """A refused shard is given up, not given out again."""
    hard: bool = False
    """Guilty nodes are banned; else it is counted."""
    guilty: list[NodeId] = Field(default_factory=list, max_length=64)
    reason: str = Field(default="", max_length=2000)
    evidence: JsonObject = Field(default_factory=dict)
    """What a slash in the ledger stands on."""


# Storage


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


# Tasks


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


class Epoch(Answer):
    """Answer to GET /epoch: what requests to this run of the service are signed for."""

    epoch: str
    time_ms: int
    """The service's clock."""


class Refusal(BaseModel):
    """Body of every error."""

    success: Literal[False] = False
    error: str
    code: str
