"""What the pool knows: nodes, groups, tasks, shards and leases, with the indices over them.

Invariants (tests/infra/pool/core checks them over random histories): a node is in at most one
group, and a group's members point back to it; a group has as many members as its topology allows,
the place in `members` is the rank; an open shard is queued, leased, or submitted, never nowhere; a
group holds at most one lease; a shard has at most one accepted result. The state belongs to one
caller, who hands it to `decide` and gets it back changed.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from infra.pool.core.requirements import Specs, Topology


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds."""

    heartbeat: float = 10.0
    unhealthy_after: float = 25.0
    """Silence after which a node's work is given to others."""
    peer_lost_after: float = 12.0
    """The same where members of its group have lost it too."""
    dead_after: float = 150.0
    """Silence after which a node is taken out of its group for good. Work has moved long before, so
    that patience costs little; the original waits for 120 to 135 s."""
    forget_after: float = 24 * 3600.0
    """Silence after which a node that is in no group is forgotten; a ban is never forgotten."""
    challenge_seconds: float = 300.0
    """Time for the proof of compute that admission asks for."""
    lease_seconds: float = 60.0
    """A lease that no heartbeat renews for so long is taken back."""
    stuck_seconds: float = 1800.0
    """A lease without progress for so long is taken back, though its nodes are alive."""
    load_seconds: float = 3600.0
    """A group that does not get ready for so long is dissolved."""
    user_retries: int = 3
    infra_losses: int = 16
    """Losses with a machine after which a shard is given up; sooner where other shards are rarely
    lost."""
    config_reports: int = 2
    """Distinct nodes that must report a bad config before the task is stopped: at least so many,
    and more than half as many as it has groups."""
    hedge_share: float = 0.5
    """Hedge a lease only if it is likely to end later than a new one, by this share of a shard's
    usual time."""
    spare_share: float = 0.02
    """Nodes of a multi-node topology that are kept out of groups to replace lost members."""
    max_rtt_ms: float = 150.0
    max_rate_ratio: float = 1.6
    """Throughputs within one group differ by at most this factor, where both are known."""
    strikes: int = 3
    """Soft refusals in a row after which a node is ejected."""
    idle_seconds: float = 30.0
    """A group without a shard for so long is given to a task that wants groups; a task that goes
    before others wants theirs for so long before they give way."""
    merge_patience: float = 600.0
    """A task must have been without a group for so long before busy ones of its own priority give
    way to it."""
    merge_min_age: float = 1800.0
    """Groups younger than this are not given up."""


class NodeState(StrEnum):
    """Names as in the original's API, without its LowBalance: there is no stake here."""

    DISCOVERED = "Discovered"
    WAITING = "WaitingForHeartbeat"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    DEAD = "Dead"
    EJECTED = "Ejected"
    BANNED = "Banned"


class ShardState(StrEnum):
    """Where a shard is."""

    QUEUED = "queued"
    LEASED = "leased"
    SUBMITTED = "submitted"
    DONE = "done"
    FAILED = "failed"


ANY_NODE = Topology("any", 1, 1)
"""The shape of tasks that name none."""

OPEN = frozenset({ShardState.QUEUED, ShardState.LEASED, ShardState.SUBMITTED})


@dataclass(slots=True)
class Node:
    """One machine; its id is its public key."""

    node_id: str
    specs: Specs
    state: NodeState
    since: float
    last_seen: float
    location: tuple[float, float] | None = None
    """Latitude and longitude in degrees."""
    address: str = ""
    """How its peers reach it."""
    proven: bool = False
    """It has shown the compute that it claims."""
    trusted: bool = False
    """Our own: it joined with an invite for such nodes."""
    group_id: str = ""
    loaded: tuple[str, int, int] | None = None
    """(model, rank, group size) of the weights in its memory."""
    standby: tuple[str, int, int] | None = None
    """What it keeps loaded while it is idle, to replace a lost member at once."""
    models: frozenset[str] = frozenset()
    """Models on its disk."""
    rate: float = 0.0
    """Operations per second as its proof of compute showed; 0 is unknown."""
    rtt_ms: dict[str, float] = field(default_factory=dict)
    """Measured round trips to peers."""
    strikes: int = 0
    leaving: bool = False
    reserved: tuple[str, float, str] | None = None
    """(task, until, topology): given up by another group for this one."""
    doubted: bool = False
    """A member of its group has lost it."""
    due: float = 0.0
    """When its silence is looked at next; other heap entries of the node are stale."""


@dataclass(slots=True)
class Group:
    """Nodes that run one model together."""

    group_id: str
    topology: str
    task_id: str
    members: list[str]
    created_at: float
    ready_at: float | None = None
    """When all members had loaded their part; None while they load."""
    version: int = 0
    """Grows when a member changes, so that a node knows that its ring is another one."""
    confirmed: set[str] = field(default_factory=set)
    """Members that have loaded their rank for this version."""
    shard_id: str = ""
    stalled_at: float | None = None
    """Since when a member is silent."""
    held: float = 0.0
    """GPU memory that it counts for in the shares of tasks, in MB."""
    give_way: str = ""
    """Why it is to be dissolved at the next shard border; empty: it goes on."""


@dataclass(slots=True)
class Lease:
    """A shard in the hands of a group."""

    group_id: str
    granted_at: float
    renewed_at: float
    progress: float = 0.0
    """Share of the shard that is done, as its nodes report."""
    progress_at: float = 0.0
    suspended: bool = False
    """A member is silent: the shard may be given to others, but is not lost yet."""


@dataclass(slots=True)
class Shard:
    """A piece of a task's work."""

    shard_id: str
    task_id: str
    kind: str = ""
    """Shards of one kind take about the same time."""
    priority: int = 0
    """Lower goes first within the task."""
    number: int = 0
    """Its place among the shards that the task was ever given."""
    state: ShardState = ShardState.QUEUED
    leases: list[Lease] = field(default_factory=list)
    submitted_by: list[str] = field(default_factory=list)
    """Groups whose result waits for its verdict."""
    accepted_by: str = ""
    user_failures: list[str] = field(default_factory=list)
    """Nodes that reported that the work itself fails."""
    losses: int = 0
    lost_by: list[str] = field(default_factory=list)
    """Nodes whose machine was lost with it, or failed at it, once for each time."""
    struck: list[str] = field(default_factory=list)
    """Those of them to whom it was counted."""
    reason: str = ""


@dataclass(slots=True)
class Task:
    """A workload: shards of one model, or a standing one that runs until it is deleted."""

    task_id: str
    name: str
    model: str
    topologies: tuple[Topology, ...]
    """Allowed shapes of group, best first; empty: one node of any kind."""
    priority: int = 0
    """Higher goes first."""
    weight: float = 1.0
    """Share among tasks of one priority."""
    created_at: float = 0.0
    standing: bool = False
    trusted: bool = False
    """For our own nodes only."""
    added: int = 0
    """Shards that it was ever given."""
    queue: deque[str] = field(default_factory=deque)
    open_shards: int = 0
    groups: int = 0
    grouped: dict[str, int] = field(default_factory=dict)
    """Nodes in its groups, by topology."""
    held: float = 0.0
    """GPU memory in its groups, in MB."""
    served: float = 0.0
    """Node-seconds that it was given."""
    leases_ended: int = 0
    """By a result or a loss."""
    leases_lost: int = 0
    config_reports: frozenset[str] = frozenset()
    starved_since: float | None = None
    """Since when it has work that no group of its own is there for."""
    stopped: str = ""
    """Why it is not scheduled any more."""
    shard_seconds: dict[str, float] = field(default_factory=dict)
    """Usual time of a shard by its kind, a moving average."""
    shard_cost: dict[str, float] = field(default_factory=dict)
    """Node-seconds of a shard by the topology that did it, a moving average."""


@dataclass(slots=True)
class PoolState:
    """All of it."""

    settings: Settings = field(default_factory=Settings)
    now: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    shards: dict[str, Shard] = field(default_factory=dict)
    next_group: int = 1
    last_tick: float | None = None
    last_sweep: float = 0.0
    grace_until: float = 0.0
    """After a gap in our own time no node is blamed for silence until then."""
    idle: dict[str, None] = field(default_factory=dict)
    """Healthy, proven nodes in no group, in the order in which they became so."""
    free: dict[str, float] = field(default_factory=dict)
    """Ready groups without a shard, and since when."""
    stalled: dict[str, None] = field(default_factory=dict)
    """Groups with a silent member."""
    due: list[tuple[float, str]] = field(default_factory=list)
    """Heap of the times at which a node's silence has to be looked at."""
    changed: set[tuple[str, str]] = field(default_factory=set)
    """(kind, id) of what must be stored; the caller empties it."""

    def touch(self, kind: str, key: str) -> None:
        """Mark an entity as changed."""
        self.changed.add((kind, key))

    def look_at(self, node: Node, at: float) -> None:
        """Look at a node's silence at a time, and not before."""
        if node.due != at:
            node.due = at
            heapq.heappush(self.due, (at, node.node_id))

    def count(self, group: Group, sign: int) -> None:
        """Book a group that begins (1) or ends (-1) with its task."""
        task = self.tasks[group.task_id]
        task.groups += sign
        task.grouped[group.topology] = task.grouped.get(group.topology, 0) + sign * len(
            group.members
        )
        # Nodes of one topology have equal or better cards; the first stands for all.
        size = max(self.nodes[group.members[0]].specs.gpu_total_mb, 1)
        group.held = group.held or float(size * len(group.members))
        task.held += sign * group.held

    def members(self, group: Group) -> list[Node]:
        """Nodes of a group, by rank."""
        return [self.nodes[node_id] for node_id in group.members]

    def topology(self, group: Group) -> Topology:
        """The shape that a group was formed in."""
        for topology in self.tasks[group.task_id].topologies:
            if topology.name == group.topology:
                return topology
        return ANY_NODE
