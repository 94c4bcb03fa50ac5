"""Nodes that leave in order."""

from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    GroupDestroyed,
    Leaving,
    MemberReplaced,
    Proved,
    Registered,
    ShardsAdded,
    Submitted,
    TaskCreated,
    Tick,
)
from infra.pool.core.requirements import Specs, parse_topology
from infra.pool.core.state import PoolState, Task

CARD = Specs(1, "RTX 4090", 24_000)


class Pair:
    """One group of two with a lease, and spares."""

    def __init__(self, spares: int) -> None:
        self.state, self.now, self.effects = PoolState(), 0.0, []
        task = Task("t", "t", "m", (parse_topology("2x24GB", {}),))
        self.send(TaskCreated(task), ShardsAdded("t", ("s0",)))
        for number in range(2 + spares):
            name = f"n{number}"
            self.send(Registered(name, CARD, (50.0, 8.0)), Proved(name, True), Beats([name]))
        self.send(Tick())
        (self.group,) = self.state.groups.values()
        self.load()
        assert self.group.shard_id == "s0"

    def send(self, *events: object) -> None:
        for event in events:
            self.state, found = decide(self.state, event, self.now)  # type: ignore[arg-type]
            self.effects += found

    def load(self) -> None:
        for member in list(self.group.members):
            self.send(Beat(member, self.group.group_id, self.group.version))

    def later(self) -> None:
        self.now += 10
        self.send(Beats(list(self.state.nodes)), Tick())


def test_its_shard_is_finished_and_a_spare_takes_its_place():
    pair = Pair(spares=1)
    leaves, stays = pair.group.members
    pair.send(Leaving(leaves))
    pair.later()
    assert pair.group.members == [leaves, stays] and pair.group.shard_id == "s0"
    pair.send(Submitted(pair.group.group_id, "s0"))
    pair.later()
    assert pair.group.members == ["n2", stays]
    assert pair.state.nodes[leaves].group_id == "" and leaves not in pair.state.idle
    pair.load()
    pair.send(ShardsAdded("t", ("s1",)))
    assert pair.group.shard_id == "s1"
    assert any(isinstance(effect, MemberReplaced) for effect in pair.effects)


def test_without_a_spare_the_group_ends_at_the_border():
    pair = Pair(spares=0)
    pair.send(Leaving(pair.group.members[1]))
    pair.later()
    assert pair.group.shard_id == "s0" and pair.state.groups
    pair.send(Submitted(pair.group.group_id, "s0"))
    pair.later()
    assert not pair.state.groups
    assert any(isinstance(effect, GroupDestroyed) for effect in pair.effects)


def test_without_a_shard_it_goes_at_once():
    pair = Pair(spares=0)
    pair.send(Submitted(pair.group.group_id, "s0"), Leaving(pair.group.members[0]))
    assert not pair.state.groups
