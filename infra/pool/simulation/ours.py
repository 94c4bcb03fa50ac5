"""Our pool in the simulation: the same core that the service runs."""

from dataclasses import dataclass

from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    Effect,
    Event,
    GroupCreated,
    GroupDestroyed,
    Judged,
    Leased,
    MemberReplaced,
    NodeChanged,
    Proved,
    Registered,
    Revoked,
    ShardsAdded,
    Submitted,
    TaskCreated,
    Tick,
)
from infra.pool.core.life import OUT
from infra.pool.core.state import NodeState, PoolState, Settings, ShardState, Task
from infra.pool.simulation.fleet import TOPOLOGIES, Machine, Model
from infra.pool.simulation.policy import Judgement, Order, Report, Standby

QUEUE = 400
"""Shards of each model that wait at any time: the work never runs out."""


@dataclass(frozen=True)
class Signals:
    """What agents tell the pool beyond being alive. Without one, the pool has to do without it."""

    lost_peers: bool = True
    """Members of a group name peers whose link is dead: silence counts sooner."""
    location: bool = True
    """Nodes say where they are; without it no distance is known."""
    standby: bool = True
    """Idle nodes keep a rank's weights in memory to take over at once."""


class Ours:
    """Policy over `infra.pool.core`."""

    def __init__(
        self,
        models: tuple[Model, ...],
        settings: Settings | None = None,
        signals: Signals | None = None,
    ):
        self.state = PoolState(settings=settings or Settings())
        self._signals = signals or Signals()
        self._models = {model.name: model for model in models}
        self.news: set[str] = set()
        self._dead: list[str] = []
        self._ended: dict[str, str] = {}
        self._made = 0
        for number, model in enumerate(models):
            shapes = tuple(TOPOLOGIES[name] for name in model.topologies)
            task = Task(f"t{number}", model.name, model.name, shapes, weight=model.weight)
            self._send(TaskCreated(task), 0.0)
        self._refill(0.0)

    def _send(self, event: Event, now: float) -> list[Effect]:
        self.state, effects = decide(self.state, event, now)
        for effect in effects:
            if isinstance(effect, NodeChanged) and effect.new == NodeState.DEAD:
                self._dead.append(effect.node_id)
            elif isinstance(effect, GroupDestroyed):
                merged = "gives way" in effect.reason or "mend" in effect.reason
                self._ended[effect.group_id] = "merge" if merged else "lost"
            if isinstance(effect, GroupCreated | GroupDestroyed):
                self.news.update(effect.members)
            elif isinstance(effect, MemberReplaced | Leased | Revoked):
                group = self.state.groups.get(effect.group_id)
                self.news.update(group.members if group else ())
                if isinstance(effect, MemberReplaced):
                    self.news.add(effect.lost)
        return effects

    def _refill(self, now: float) -> None:
        for task in list(self.state.tasks.values()):
            missing = QUEUE - len(task.queue)
            if missing > QUEUE // 2:
                names = tuple(f"{task.task_id}-{self._made + n}" for n in range(missing))
                self._made += missing
                self._send(ShardsAdded(task.task_id, names), now)

    def join(self, machine: Machine, now: float) -> None:
        """Register and prove; the proof is instant here."""
        known = self.state.nodes.get(machine.node_id)
        proven = known is not None and known.proven
        self._send(
            Registered(
                machine.node_id,
                machine.specs,
                machine.place if self._signals.location else None,
                machine.node_id,
                frozenset(machine.disk),
            ),
            now,
        )
        if not proven:
            self._send(Proved(machine.node_id, True, machine.rate), now)

    def beat(self, report: Report, now: float) -> Order | Standby | None:
        """The order follows from the node's group and its lease."""
        self.news.discard(report.node_id)
        version = report.version if report.ready else -1
        self._send(
            Beat(
                report.node_id,
                report.group_id,
                version,
                report.shard_id,
                report.progress,
                lost_peers=report.lost_peers if self._signals.lost_peers else (),
                standing_by=report.standing_by,
            ),
            now,
        )
        node = self.state.nodes.get(report.node_id)
        group = self.state.groups.get(node.group_id) if node else None
        if group is None:
            part = node.standby if node and self._signals.standby else None
            return Standby(self._models[part[0]], part) if part else None
        model = self._models[self.state.tasks[group.task_id].model]
        members = tuple(group.members)
        return Order(group.group_id, group.version, members, model, group.shard_id)

    def beats(self, node_ids: list[str], now: float) -> None:
        """They are alive."""
        self._send(Beats(node_ids), now)

    def tick(self, now: float) -> None:
        """Time passes; the queues stay full, done shards are forgotten."""
        self._send(Tick(), now)
        self._refill(now)

    def submitted(self, group_id: str, shard_id: str, now: float) -> None:
        """A result is there."""
        self._send(Submitted(group_id, shard_id), now)

    def judged(self, result: Judgement, now: float) -> bool:
        """A verdict; it counts if this group's result is the one that was accepted."""
        group_id, shard_id = result.group_id, result.shard_id
        verdict = (result.accepted, result.hard, result.guilty, "refused")
        self._send(Judged(shard_id, group_id, *verdict), now)
        shard = self.state.shards.get(shard_id)
        if shard is None or shard.state is not ShardState.DONE:
            return False
        counts = shard.accepted_by == group_id
        if counts and not shard.submitted_by:
            del self.state.shards[shard_id]
        return counts

    def is_out(self, node_id: str) -> bool:
        """Ejected or banned."""
        node = self.state.nodes.get(node_id)
        return node is not None and node.state in OUT

    def newly_dead(self) -> list[str]:
        """Nodes declared dead since the last call."""
        dead, self._dead = self._dead, []
        return dead

    def broken_off(self, group_id: str) -> str:
        """Why a group ended."""
        return self._ended.get(group_id, "lost")

    def is_stuck(self, group_id: str) -> bool:
        """An excluded member never stays in a group."""
        return False
