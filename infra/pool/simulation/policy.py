"""What a simulated service knows and says: the seam between the world and a pool's policies."""

from dataclasses import dataclass
from typing import Protocol

from infra.pool.simulation.fleet import Machine, Model


@dataclass(frozen=True, slots=True)
class Order:
    """What a node is told with its heartbeat."""

    group_id: str
    version: int
    members: tuple[str, ...]
    model: Model
    shard_id: str
    """Empty: nothing to do yet."""


@dataclass(frozen=True, slots=True)
class Standby:
    """A node without a group is told to keep a part loaded."""

    model: Model
    part: tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Report:
    """What a node says in its heartbeat."""

    node_id: str
    group_id: str
    version: int
    ready: bool
    shard_id: str
    progress: float
    lost_peers: tuple[str, ...]
    standing_by: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """A validator's verdict on a result."""

    group_id: str
    shard_id: str
    accepted: bool
    guilty: tuple[str, ...] = ()
    """Members whose part was refused."""
    hard: bool = False
    """Fraud is proven; otherwise the work is void and nothing else is known."""


class Policy(Protocol):
    """A pool service."""

    def join(self, machine: Machine, now: float) -> None:
        """A machine has started and registers."""
        ...

    def beat(self, report: Report, now: float) -> Order | Standby | None:
        """A heartbeat; the answer is the node's order, None without one."""
        ...

    def beats(self, node_ids: list[str], now: float) -> None:
        """Heartbeats of nodes for which nothing has changed on either side."""
        ...

    news: set[str]
    """Nodes whose order has changed since their last full heartbeat."""

    def tick(self, now: float) -> None:
        """Five seconds have passed."""
        ...

    def submitted(self, group_id: str, shard_id: str, now: float) -> None:
        """A group's result is there."""
        ...

    def judged(self, result: Judgement, now: float) -> bool:
        """The verdict on a result; whether it counts (one result per shard does)."""
        ...

    def is_out(self, node_id: str) -> bool:
        """Whether a node is excluded: ejected or banned."""
        ...

    def newly_dead(self) -> list[str]:
        """Nodes that were declared dead since the last call."""
        ...

    def broken_off(self, group_id: str) -> str:
        """Why a group is no more: `merge` when the pool wanted its nodes elsewhere, else `lost`."""
        ...

    def is_stuck(self, group_id: str) -> bool:
        """Whether a group has a member that the pool itself has excluded."""
        ...
