"""Random histories: whatever happens in whatever order, the pool's invariants hold."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.pool.core import codec
from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    Disbanded,
    Dropped,
    Excluded,
    Failed,
    Gone,
    Judged,
    Leaving,
    Proved,
    Registered,
    ShardEnded,
    ShardsAdded,
    Submitted,
    TaskCreated,
    TaskDeleted,
    Tick,
)
from infra.pool.core.requirements import Specs, parse_topology
from infra.pool.core.state import OPEN, NodeState, PoolState, Settings, ShardState, Task

PLACES = [(50.1, 8.7), (52.5, 13.4), (37.8, -122.4), None]
BIG, SMALL = Specs(8, "H200", 141_000), Specs(1, "RTX 4090", 24_000)
TOPOLOGIES = [("1x1128GB",), ("2x24GB",), ("3x24GB", "1x24GB"), ()]


class World:
    """A pool, and somebody who does anything to it at any time."""

    def __init__(self) -> None:
        self.state = PoolState(
            settings=Settings(spare_share=0.2, merge_patience=40, merge_min_age=60, idle_seconds=10)
        )
        self.now = 1000.0
        self.accepted: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.added: set[str] = set()
        self.stored: dict[tuple[str, str], str] = {}

    def send(self, event: object) -> None:
        self.state, effects = decide(self.state, event, self.now)  # type: ignore[arg-type]
        for effect in effects:
            if isinstance(effect, ShardEnded):
                self.ended[effect.shard_id] = self.ended.get(effect.shard_id, 0) + 1
                assert self.ended[effect.shard_id] == 1, "a shard ended twice"
        for row in self.state.changed:
            text = codec.dump(self.state, *row)
            if text is None:
                self.stored.pop(row, None)
            else:
                self.stored[row] = text
        self.state.changed.clear()
        self.check()

    def act(self, what: int, value: int) -> None:
        state, node = self.state, f"n{value % 10}"
        groups, shards = sorted(state.groups), sorted(state.shards)
        group = state.groups[groups[value % len(groups)]] if groups else None
        if what == 0 and (node not in state.nodes or value % 3 == 0):
            specs = BIG if value % 10 < 2 else SMALL
            self.send(Registered(node, specs, PLACES[value % 4], "addr", trusted=value % 2 == 0))
        elif what == 1:
            self.send(Proved(node, value % 11 != 0, 1e12 * (1 + value % 2)))
        elif what in (2, 3, 4):
            self.now += 5
            self.beat_all(skip=value % 14)
        elif what == 5:
            self.now += value % 400
            self.send(Tick())
        elif what in (6, 7, 8):
            self.now += 5
            self.send(Tick())
        elif what == 9:
            name = f"t{value % 3}"
            if name not in state.tasks:
                shapes = [parse_topology(t, {}) for t in TOPOLOGIES[value % 4]]
                task = Task(name, name, f"m{value % 2}", tuple(shapes), value % 2, 1 + value % 3)
                task.trusted = value % 5 == 0
                self.send(TaskCreated(task))
        elif what == 10:
            names = tuple(f"t{value % 3}-s{n}" for n in range(value % 5))
            if f"t{value % 3}" in state.tasks:
                self.added.update(names)
                kind = f"k{value % 2}"
                self.send(ShardsAdded(f"t{value % 3}", names, kind, value % 3 - 1))
        elif what in (11, 12) and group is not None:
            self.send(Submitted(group.group_id, group.shard_id))
        elif what in (13, 14) and shards:
            shard = state.shards[shards[value % len(shards)]]
            if shard.submitted_by:
                by = shard.submitted_by[0]
                guilty = tuple(state.groups[by].members[:1]) if by in state.groups else ()
                verdict = (value % 3 != 0, value % 6 == 0, guilty, "x", value % 12 == 0)
                self.send(Judged(shard.shard_id, by, *verdict))
        elif what == 15 and group is not None:
            cause = ("user", "user", "infra", "infra", "config")[value % 5]
            self.send(Failed(group.group_id, group.shard_id, group.members[0], cause, "boom"))
        elif what == 19 and shards and value % 2:
            self.send(Dropped(shards[value % len(shards)]))
        elif what == 16:
            self.send((Gone(node), Leaving(node), Excluded(node, value % 2 == 0, "x"))[value % 3])
        elif what == 17 and value % 9 == 1 and group is not None:
            self.send(Disbanded(group.group_id, "an operator wants it"))
        elif what == 17 and value % 9 == 2:
            self.send(Beat(node, models=frozenset({f"m{value % 2}"})))
            self.send(Beat(node, rtt_ms=((f"n{value % 7}", float(value)), ("nobody", 1.0))))
        elif what == 17 and value % 9 == 3 and group is not None:
            lost = (*group.members[1:], "nobody")
            self.send(Beat(group.members[0], group.group_id, lost_peers=lost))
        elif what == 17 and value % 9 == 0:
            self.added -= {s for s in self.added if s.startswith(f"t{value % 3}-")}
            for shard_id in [s for s in self.ended if s.startswith(f"t{value % 3}-")]:
                del self.ended[shard_id]
            self.send(TaskDeleted(f"t{value % 3}"))
        elif what == 18:
            self.restart()
        elif what == 19:
            self.now -= value % 1000

    def beat_all(self, skip: int) -> None:
        for number, (node_id, node) in enumerate(sorted(self.state.nodes.items())):
            if number == skip:
                continue
            group = self.state.groups.get(node.group_id)
            if node.standby is not None:
                self.send(Beat(node_id, standing_by=True))
            elif group is None:
                self.send(Beats([node_id]))
            else:
                progress = (number * 37 % 100) / 100
                self.send(Beat(node_id, group.group_id, group.version, group.shard_id, progress))

    def restart(self) -> None:
        """The service was killed: what the changed rows say comes back."""
        before = {(kind, key) for kind, key, _ in codec.dump_all(self.state)}
        assert before - {codec.NEXT_GROUP} == set(self.stored) - {codec.NEXT_GROUP}
        rows = [(*row, text) for row, text in self.stored.items()]
        old, self.state = self.state, codec.load(rows, self.state.settings, max(self.now, 0.0))
        for task_id, task in old.tasks.items():
            again = self.state.tasks[task_id]
            assert (again.open_shards, again.groups) == (task.open_shards, task.groups)
            assert again.held == pytest.approx(task.held)
        for group_id, group in old.groups.items():
            again = self.state.groups[group_id]
            assert (again.members, again.shard_id) == (group.members, group.shard_id)
        for shard_id, shard in old.shards.items():
            assert self.state.shards[shard_id].state == shard.state
        assert set(self.state.idle) == set(old.idle)
        assert set(self.state.free) == set(old.free)
        self.check()

    def check(self) -> None:
        state = self.state
        seen: set[str] = set()
        for group in state.groups.values():
            topology = state.topology(group) if group.task_id in state.tasks else None
            assert topology is not None
            assert topology.min_size <= len(group.members) <= topology.max_size
            assert len(set(group.members)) == len(group.members)
            if state.tasks[group.task_id].trusted:
                assert all(state.nodes[member].trusted for member in group.members)
            assert not seen & set(group.members), "a node is in two groups"
            seen |= set(group.members)
            for member in group.members:
                assert state.nodes[member].group_id == group.group_id
                assert state.nodes[member].state not in (NodeState.BANNED, NodeState.EJECTED)
            if group.shard_id:
                leases = state.shards[group.shard_id].leases
                assert sum(lease.group_id == group.group_id for lease in leases) == 1
        for node in state.nodes.values():
            assert (node.group_id == "") == (node.node_id not in seen)
            usable = node.state is NodeState.HEALTHY and node.proven and not node.leaving
            assert (node.node_id in state.idle) == (usable and not node.group_id)
        for shard in state.shards.values():
            assert (shard.accepted_by != "") == (shard.state is ShardState.DONE)
            for lease in shard.leases:
                assert state.groups[lease.group_id].shard_id == shard.shard_id
            if shard.state is ShardState.LEASED:
                assert any(not lease.suspended for lease in shard.leases), "a lease was lost"
            if shard.state is ShardState.SUBMITTED:
                assert shard.submitted_by
            if shard.state not in OPEN:
                assert not shard.leases
        for task in state.tasks.values():
            queued = [
                s.shard_id
                for s in state.shards.values()
                if s.task_id == task.task_id and s.state is ShardState.QUEUED
            ]
            assert sorted(task.queue) == sorted(queued)
            own = [s for s in state.shards.values() if s.task_id == task.task_id]
            assert task.open_shards == sum(s.state in OPEN for s in own)
            teams = [g for g in state.groups.values() if g.task_id == task.task_id]
            assert task.groups == len(teams)
            assert sum(task.grouped.values()) == sum(len(g.members) for g in teams)
            assert task.held == sum(g.held for g in teams)
        assert self.added <= set(state.shards), "a shard is gone"
        for group_id in state.free:
            group = state.groups[group_id]
            assert group.ready_at is not None and not group.shard_id and group.stalled_at is None


ACTION = st.tuples(st.integers(0, 19), st.integers(0, 2000))
PRELUDE = [
    *((0, n) for n in range(10)),
    *((1, n + 20) for n in range(10)),
    *((9, 0), (9, 1), (9, 2), (2, 10), (10, 9), (10, 4), (10, 14), (6, 0), (2, 10), (6, 0)),
]


def play(history: list[tuple[int, int]]) -> None:
    world = World()
    for what, value in [*PRELUDE, *history]:
        world.act(what, value)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ACTION, min_size=20, max_size=160))
def test_invariants_hold_in_any_history(history: list[tuple[int, int]]) -> None:
    play(history)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ACTION, min_size=60, max_size=200))
def test_invariants_hold_in_thousands_of_histories(history: list[tuple[int, int]]) -> None:
    play(history)
