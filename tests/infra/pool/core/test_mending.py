"""Stalled groups: one gives its nodes to another only where that makes the other whole."""

import pytest

from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    GroupDestroyed,
    Proved,
    Registered,
    ShardsAdded,
    TaskCreated,
    Tick,
)
from infra.pool.core.requirements import Specs, parse_topology
from infra.pool.core.state import PoolState, Task

CARD = Specs(1, "RTX 4090", 24_000)
FRANKFURT, BERLIN, SYDNEY = (50.1, 8.7), (52.5, 13.4), (-33.9, 151.2)


class Crippled:
    """Two groups of two, each with a member that is silent for 25 s, and no spare."""

    def __init__(self, places=(FRANKFURT, BERLIN), priorities=(0, 0), trusted=(False, False)):
        self.state, self.now, self.effects = PoolState(), 0.0, []
        for number, place in enumerate(places):
            task = Task(f"t{number}", f"t{number}", "m", (parse_topology("2x24GB", {}),))
            task.priority, task.trusted = priorities[number], trusted[number]
            names = [f"n{number}a", f"n{number}b"]
            for name in names:
                joins = Registered(name, CARD, place, trusted=trusted[number])
                self.send(joins, Proved(name, True), Beats([name]))
            self.send(TaskCreated(task), ShardsAdded(task.task_id, (f"s{number}",)))
        for group in self.state.groups.values():
            for member in group.members:
                self.send(Beat(member, group.group_id, group.version))
        for _ in range(6):
            self.now += 5
            self.send(Beats(["n0a", "n1a"]), Tick())

    def send(self, *events: object) -> None:
        for event in events:
            self.state, found = decide(self.state, event, self.now)  # type: ignore[arg-type]
            self.effects += found

    @property
    def left(self) -> dict[str, set[str]]:
        return {group.task_id: set(group.members) for group in self.state.groups.values()}


def test_a_near_one_gives_its_node():
    assert Crippled(priorities=(1, 0)).left == {"t0": {"n0a", "n1a"}}


@pytest.mark.parametrize(
    "case",
    [{"places": (FRANKFURT, SYDNEY)}, {"places": (FRANKFURT, SYDNEY), "priorities": (0, 1)}],
)
def test_none_is_killed_for_nothing(case):
    pool = Crippled(**case)
    assert pool.left == {"t0": {"n0a", "n0b"}, "t1": {"n1a", "n1b"}}
    assert not any(isinstance(effect, GroupDestroyed) for effect in pool.effects)


def test_the_higher_priority_is_mended_whichever_is_younger():
    assert Crippled(priorities=(0, 1)).left == {"t1": {"n0a", "n1a"}}


def test_strangers_nodes_do_not_mend_a_trusted_tasks_group():
    assert Crippled(trusted=(True, False)).left == {"t1": {"n0a", "n1a"}}
