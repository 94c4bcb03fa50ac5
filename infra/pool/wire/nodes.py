"""A node's way in, its heartbeats, and what it is told with them."""

from typing import Literal

from pydantic import Field

from infra.pool.challenge import Challenge, Opening
from infra.pool.wire.base import (
    Answer,
    Finite,
    Id,
    JsonObject,
    NodeId,
    P2pId,
    Said,
    Sha256,
    ShortText,
    Shown,
)
from infra.pool.wire.shards import CanaryWork
from infra.pool.wire.tasks import VolumeMount


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
    worker_p2p_id: P2pId = ""
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
    canary: CanaryWork | None = None
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
    p2p_id: P2pId | None = None
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
    """What it was asked to keep loaded is loaded."""
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
    volume_mounts: list[VolumeMount]
    sharded: bool
    """Work comes as shards; else the task is the process itself."""


class Standby(Shown):
    """What an idle node keeps loaded, to replace a lost member of a group at once."""

    task: Assignment
    """Without a group: what names one is empty."""
    index: int
    size: int


class HeartbeatData(Shown):
    """What the node has to do now; the same until it changes."""

    current_task: Assignment | None = None
    group: GroupView | None = None
    shard_id: str = ""
    """The shard that its group has a lease on: GET /shards/{shard_id}, unless it is at it."""
    leased_at: float = 0.0
    """Tells a second lease on the same shard from the first."""
    standby: Standby | None = None
    orders: list[Order] = Field(default_factory=list)
    register_again: bool = False
    """The service wants the node to register and prove itself anew."""
    leaving: bool = False


class HeartbeatAnswer(Answer):
    """Answer to POST /heartbeat."""

    data: HeartbeatData
    etag: str = ""
    """Names `data`."""
    neighbours: list[Peer] | None = None
    """Nodes whose round trip the node is to measure; None: the same as before."""


class Exclusion(Said):
    """Body of POST /nodes/{id}/ban and /eject."""

    reason: str = Field(default="by the operator", max_length=2000)
    evidence: JsonObject = Field(default_factory=dict)
    """What shows it; for the ledger."""


class OrderAnswer(Said):
    """What came of an order."""

    text: str = Field(default="", max_length=1 << 20)
