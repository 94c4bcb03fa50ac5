"""The original orchestrator's policies, from its public source, as the simulation's other side.

Heartbeat keys live 90 s; a status round every 15 s takes a node from Healthy to Unhealthy at once
and to Dead two rounds later; a group is dissolved only when a member is Dead. Groups are formed
every 10 s: configurations by size, the largest first, the nearest nodes by great-circle distance,
whatever their throughput; solo groups are merged whenever they can make a larger one, and what they
were doing is thrown away. A group takes a random task that allows its configuration and has no
shards: it works until the task or the group ends. An ejected member leaves a broken group behind,
until an operator dissolves it.
"""

import random
from dataclasses import dataclass, field

from infra.pool.core.distance import haversine_km
from infra.pool.core.requirements import Topology
from infra.pool.simulation.fleet import TOPOLOGIES, Machine, Model
from infra.pool.simulation.policy import Judgement, Order, Report

KEY_SECONDS = 90.0
STATUS_SECONDS = 15.0
GROUP_SECONDS = 10.0
MISSED = 3
"""Status rounds without a key until Dead."""


@dataclass
class _Node:
    machine: Machine
    state: str = "Discovered"
    last_beat: float = -1e9
    missed: int = 0
    group_id: str = ""


@dataclass
class _Group:
    group_id: str
    config: Topology
    members: tuple[str, ...]
    model: Model
    broken_at: float | None = None
    """Since when a member is ejected."""
    shards: int = field(default=0)


class Original:
    """Policy of the original."""

    def __init__(self, models: tuple[Model, ...], rng: random.Random, operator_seconds: float):
        self._rng = rng
        self._operator_seconds = operator_seconds
        self.nodes: dict[str, _Node] = {}
        self.groups: dict[str, _Group] = {}
        self._made = 0
        self.news: set[str] = set()
        self._dead: list[str] = []
        self._ended: dict[str, str] = {}
        self._accepted: set[str] = set()
        configs = {
            name: (TOPOLOGIES[name], [m for m in models if name in m.topologies])
            for model in models
            for name in model.topologies
        }
        self._configs = sorted(configs.values(), key=lambda item: -item[0].min_size)

    def join(self, machine: Machine, now: float) -> None:
        """Registered and invited; a known node keeps its group until it is dead."""
        node = self.nodes.setdefault(machine.node_id, _Node(machine))
        if node.state == "Dead":
            node.state, node.missed = "Discovered", 0

    def beat(self, report: Report, now: float) -> Order | None:
        """The heartbeat's answer is the group's task."""
        self.news.discard(report.node_id)
        node = self.nodes[report.node_id]
        node.last_beat = now
        group = self.groups.get(node.group_id)
        if group is None or node.state == "Ejected":
            return None
        shard_id = f"{group.group_id}-{group.shards}"
        return Order(group.group_id, 0, group.members, group.model, shard_id)

    def beats(self, node_ids: list[str], now: float) -> None:
        """Their keys are renewed."""
        for node_id in node_ids:
            self.nodes[node_id].last_beat = now

    def tick(self, now: float) -> None:
        """The loops, each at its own period."""
        if now % STATUS_SECONDS < 5.0:
            self._status_round(now)
        if now % GROUP_SECONDS < 5.0:
            for group in list(self.groups.values()):
                if group.broken_at is not None and now - group.broken_at > self._operator_seconds:
                    self._dissolve(group, "lost")
            self._form()
            self._merge()

    def _status_round(self, now: float) -> None:
        for node in self.nodes.values():
            if node.state == "Ejected":
                continue
            if now - node.last_beat < KEY_SECONDS:
                node.state, node.missed = "Healthy", 0
            elif node.state == "Healthy":
                node.state, node.missed = "Unhealthy", node.missed + 1
            elif node.state == "Unhealthy":
                node.missed += 1
                if node.missed >= MISSED:
                    node.state = "Dead"
                    self._dead.append(node.machine.node_id)
                    if node.group_id:
                        self._dissolve(self.groups[node.group_id], "lost")

    def _dissolve(self, group: _Group, cause: str) -> None:
        del self.groups[group.group_id]
        self._ended[group.group_id] = cause
        self.news.update(group.members)
        for member in group.members:
            self.nodes[member].group_id = ""

    def _form(self) -> None:
        idle = [n for n in self.nodes.values() if n.state == "Healthy" and not n.group_id]
        for config, models in self._configs:
            while len(idle) >= config.min_size:
                fit = [n for n in idle if config.requirement.met_by(n.machine.specs)]
                if len(fit) < config.min_size:
                    break
                chosen = _nearest(fit, config.max_size)
                self._create(config, models, chosen)
                idle = [n for n in idle if not n.group_id]

    def _merge(self) -> None:
        for config, models in self._configs:
            while config.max_size >= 2:
                solo = [
                    self.nodes[group.members[0]]
                    for group in self.groups.values()
                    if len(group.members) == 1
                ]
                fit = [n for n in solo if config.requirement.met_by(n.machine.specs)]
                if len(fit) < max(2, config.min_size):
                    break
                chosen = _nearest(fit, config.max_size)
                for node in chosen:
                    self._dissolve(self.groups[node.group_id], "merge")
                self._create(config, models, chosen)

    def _create(self, config: Topology, models: list[Model], nodes: list[_Node]) -> None:
        members = tuple(sorted(node.machine.node_id for node in nodes))
        self._made += 1
        group = _Group(f"g{self._made}", config, members, self._rng.choice(models))
        self.groups[group.group_id] = group
        self.news.update(members)
        for node in nodes:
            node.group_id = group.group_id

    def submitted(self, group_id: str, shard_id: str, now: float) -> None:
        """A file is there; the group goes on with the next."""
        if group_id in self.groups:
            self.groups[group_id].shards += 1
            self.news.update(self.groups[group_id].members)

    def judged(self, result: Judgement, now: float) -> bool:
        """A hard refusal ejects the node, a soft one only voids the work; its group stays."""
        for node_id in result.guilty if result.hard else ():
            node = self.nodes[node_id]
            if node.state != "Ejected":
                node.state = "Ejected"
                group = self.groups.get(node.group_id)
                if group is not None and group.broken_at is None:
                    group.broken_at = now
        return result.accepted

    def is_out(self, node_id: str) -> bool:
        """Ejected."""
        return self.nodes[node_id].state == "Ejected"

    def newly_dead(self) -> list[str]:
        """Nodes declared dead since the last call."""
        dead, self._dead = self._dead, []
        return dead

    def broken_off(self, group_id: str) -> str:
        """Why a group ended."""
        return self._ended.get(group_id, "lost")

    def is_stuck(self, group_id: str) -> bool:
        """Whether an ejected member is left in the group."""
        group = self.groups.get(group_id)
        return group is not None and group.broken_at is not None


def _nearest(nodes: list[_Node], count: int) -> list[_Node]:
    """The first node and the nearest to it."""
    seed = nodes[0]
    others = sorted(nodes[1:], key=lambda n: haversine_km(seed.machine.place, n.machine.place))
    return [seed, *others[: count - 1]]
