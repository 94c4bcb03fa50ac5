"""What happens to the pool, and what the pool wants done about it.

Events come from nodes, users, validators and the clock; who may send which is the service's
business. Effects are told to nodes, stores and listeners; losing one loses no work, because a node
learns its group, rank and lease with each heartbeat again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from infra.pool.core.requirements import Specs
from infra.pool.core.state import Task


@dataclass(frozen=True, slots=True)
class Registered:
    """A node with an invite has said what it is; again after each of its starts."""

    node_id: str
    specs: Specs
    location: tuple[float, float] | None = None
    address: str = ""
    models: frozenset[str] = frozenset()
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Proved:
    """The node's answer to the challenge was judged."""

    node_id: str
    passed: bool
    rate: float = 0.0
    """Operations per second that it showed."""


@dataclass(frozen=True, slots=True)
class CanaryGiven:
    """A node that is not admitted yet works for some time before it is judged."""

    node_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat. What it reports is a claim; it decides no verdict."""

    node_id: str
    group_id: str = ""
    version: int = -1
    """Version of the group that the node is ready for; -1: not ready."""
    shard_id: str = ""
    progress: float = 0.0
    models: frozenset[str] | None = None
    rtt_ms: tuple[tuple[str, float], ...] = ()
    lost_peers: tuple[str, ...] = ()
    """Members of its group whose link is dead."""
    standing_by: bool = False
    """An idle node has loaded what it was asked to."""


@dataclass(frozen=True, slots=True)
class Beats:
    """Heartbeats that only say "alive"."""

    node_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Leaving:
    """A node stops after its shard."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A node's process ended, or a peer's closed connection shows that it did."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """An operator's or the ledger's decision; a ban is for good."""

    node_id: str
    ban: bool
    reason: str


@dataclass(frozen=True, slots=True)
class TaskCreated:
    """A task with no shards yet."""

    task: Task


@dataclass(frozen=True, slots=True)
class TaskDeleted:
    """The task, its shards and groups go away."""

    task_id: str


@dataclass(frozen=True, slots=True)
class ShardsAdded:
    """New shards of a task, in order; known ones are skipped."""

    task_id: str
    shard_ids: tuple[str, ...]
    kind: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Dropped:
    """Nobody wants a shard any more; if a group has it already, it goes on."""

    shard_id: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """A group says that a shard is done and where its result is."""

    group_id: str
    shard_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A group says that it could not do a shard. cause: user, infra or config."""

    group_id: str
    shard_id: str
    node_id: str
    cause: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """The validator's verdict on a result. guilty: nodes to exclude (hard) or to count (soft).

    final: refused, the shard is given up.
    """

    shard_id: str
    group_id: str
    accepted: bool
    hard: bool = False
    guilty: tuple[str, ...] = ()
    reason: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class Disbanded:
    """An operator ends a group; its nodes are free for others."""

    group_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Registered
    | Proved
    | CanaryGiven
    | Beat
    | Beats
    | Leaving
    | Gone
    | Excluded
    | TaskCreated
    | TaskDeleted
    | ShardsAdded
    | Dropped
    | Submitted
    | Failed
    | Judged
    | Disbanded
    | Tick
)


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node went from one state to another."""

    node_id: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChallengeWanted:
    """Ask the node to prove its compute."""

    node_id: str


@dataclass(frozen=True, slots=True)
class GroupCreated:
    """Nodes were put together, by rank."""

    group_id: str
    topology: str
    task_id: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupReady:
    """All members have loaded."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberReplaced:
    """A spare took a rank."""

    group_id: str
    rank: int
    lost: str
    spare: str


@dataclass(frozen=True, slots=True)
class GroupDestroyed:
    """A group is no more."""

    group_id: str
    topology: str
    task_id: str
    members: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Leased:
    """A group has a shard; hedge: another group has it too."""

    shard_id: str
    group_id: str
    hedge: bool = False


@dataclass(frozen=True, slots=True)
class Revoked:
    """A group must stop working on a shard."""

    shard_id: str
    group_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Requeued:
    """A shard waits again."""

    shard_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerdictWanted:
    """A result is to be validated."""

    shard_id: str
    group_id: str


@dataclass(frozen=True, slots=True)
class ShardEnded:
    """A shard is done (accepted) or given up."""

    shard_id: str
    task_id: str
    done: bool
    group_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TaskStopped:
    """A task is not scheduled any more."""

    task_id: str
    reason: str


Effect = (
    NodeChanged
    | ChallengeWanted
    | GroupCreated
    | GroupReady
    | MemberReplaced
    | GroupDestroyed
    | Leased
    | Revoked
    | Requeued
    | VerdictWanted
    | ShardEnded
    | TaskStopped
)


@dataclass(slots=True)
class Effects:
    """Collects effects in order."""

    items: list[Effect] = field(default_factory=list)

    def add(self, effect: Effect) -> None:
        """One more."""
        self.items.append(effect)
