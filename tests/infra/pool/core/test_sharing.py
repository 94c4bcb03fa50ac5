"""Groups go where the work is, and do not go to and fro."""

import pytest

from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    GroupCreated,
    Judged,
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
HERE = (50.1, 8.7)


class Pool:
    """Nodes that load in `load` seconds and need `work` for a shard; seconds pass one by one."""

    def __init__(self, nodes: int, load: float = 4.0, work: float = 10.0, trusted: int = 0):
        self.state, self.now, self.effects = PoolState(), 0.0, []
        self.load, self.work, self.got = load, work, dict[str, float]()
        for number in range(nodes):
            name = f"n{number}"
            joins = Registered(name, CARD, HERE, trusted=number < trusted)
            self.send(joins, Proved(name, True), Beats([name]))

    def send(self, *events: object) -> None:
        for event in events:
            self.state, found = decide(self.state, event, self.now)  # type: ignore[arg-type]
            self.effects += [(self.now, effect) for effect in found]

    def task(self, name: str, shape: str = "1x24GB", **fields: object) -> None:
        task = Task(name, name, name, (parse_topology(shape, {}),), **fields)  # type: ignore[arg-type]
        self.send(TaskCreated(task))

    def add(self, name: str, shards: int) -> None:
        at = len(self.state.shards)
        self.send(ShardsAdded(name, tuple(f"{name}-{at + n}" for n in range(shards))))

    def run(self, seconds: int, stop=lambda pool: False) -> float:
        """Seconds until `stop` holds, or all of them."""
        started = self.now
        while self.now - started < seconds and not stop(self):
            self.now += 1
            self.send(Beats(list(self.state.nodes)), Tick())
            for group in list(self.state.groups.values()):
                loaded = self.now - group.created_at >= self.load
                for member in list(group.members):
                    version = group.version if loaded else -1
                    self.send(Beat(member, group.group_id, version, group.shard_id, 0.5))
                since = self.got.setdefault(group.group_id + group.shard_id, self.now)
                if group.shard_id and self.now - since >= self.work:
                    shard = group.shard_id
                    self.send(Submitted(group.group_id, shard))
                    self.send(Judged(shard, group.group_id, True))
        return self.now - started

    def groups(self, name: str) -> int:
        return self.state.tasks[name].groups

    def created(self) -> int:
        return sum(isinstance(effect, GroupCreated) for _, effect in self.effects)

    def done(self, name: str) -> int:
        return sum(s.task_id == name and s.accepted_by != "" for s in self.state.shards.values())


def test_idle_groups_go_to_the_task_that_has_work():
    pool = Pool(nodes=4)
    pool.task("a"), pool.task("b")
    pool.add("a", 4)
    pool.run(20)
    assert pool.groups("a") == 4 and pool.done("a") == 4
    pool.add("b", 8)
    assert pool.run(200, lambda p: p.done("b") == 8) < 90
    assert pool.groups("b") == 4


def test_groups_of_several_nodes_too_in_both_directions():
    pool = Pool(nodes=4)
    pool.task("pairs", "2x24GB"), pool.task("single")
    pool.add("pairs", 2)
    pool.run(20)
    assert pool.groups("pairs") == 2
    pool.add("single", 3)
    assert pool.run(200, lambda p: p.done("single") == 3) < 80
    pool.add("pairs", 4)
    assert pool.run(200, lambda p: p.done("pairs") == 6) < 120


def test_trusted_nodes_come_back_from_the_strangers_task_within_seconds():
    pool = Pool(nodes=4, trusted=2)
    pool.task("generate"), pool.task("validate", trusted=True)
    pool.add("generate", 1000)
    pool.run(60)
    assert pool.groups("generate") == 4
    pool.add("validate", 1)
    assert pool.run(300, lambda p: p.done("validate") == 1) < 75
    assert pool.groups("generate") == 3


def test_a_higher_priority_gets_groups_at_their_shard_borders():
    pool = Pool(nodes=4, work=20)
    pool.task("low"), pool.task("high", priority=1)
    pool.add("low", 1000)
    pool.run(50)
    pool.add("high", 20)
    assert pool.run(300, lambda p: p.groups("high") == 4) < 90
    # What was begun was not thrown away.
    assert all(not shard.losses for shard in pool.state.shards.values())


def test_the_same_priority_waits_until_it_starves():
    pool = Pool(nodes=2)
    pool.task("a"), pool.task("b")
    pool.add("a", 1000)
    pool.run(300)
    pool.add("b", 5)
    settings = pool.state.settings
    assert pool.run(3000, lambda p: p.groups("b") > 0) >= settings.merge_patience
    assert pool.now >= settings.merge_min_age
    assert pool.groups("a") == 1


def test_a_pair_for_a_starved_task_is_made_of_solo_groups_and_only_of_whole_ones():
    pool = Pool(nodes=3)
    pool.task("solo"), pool.task("pairs", "2x24GB", priority=1), pool.task("five", "5x24GB")
    pool.add("solo", 1000)
    pool.run(60)
    pool.add("pairs", 1)
    pool.state.tasks["five"].priority = 2
    pool.add("five", 1)
    assert pool.run(300, lambda p: p.groups("pairs") == 1) < 60
    assert pool.groups("solo") == 1 and pool.groups("five") == 0


@pytest.mark.parametrize("load", [5.0, 60.0])
@pytest.mark.parametrize("period", [20, 45, 90])
def test_tasks_that_are_empty_by_turns_do_not_flap(load, period):
    pool = Pool(nodes=8, load=load, work=5)
    pool.task("a"), pool.task("b")
    pool.add("a", 4), pool.add("b", 4)
    pool.run(80)
    assert pool.groups("a") == pool.groups("b") == 4
    before, rounds = pool.created(), 1200 // period
    for turn in range(rounds):
        pool.add("ab"[turn % 2], 4)
        pool.run(period)
    assert pool.created() == before
    assert pool.done("a") + pool.done("b") >= 4 * rounds


def test_one_node_for_two_tasks_is_given_over_no_faster_than_it_may():
    pool = Pool(nodes=1, load=5, work=5)
    pool.task("a"), pool.task("b")
    for turn in range(40):
        pool.add("ab"[turn % 2], 1)
        pool.run(30)
    assert pool.created() <= 1200 / (30 + 5 + 5) + 1
    assert pool.done("a") and pool.done("b")


def test_a_standing_task_gets_no_more_than_its_share_of_idle_groups():
    pool = Pool(nodes=4)
    pool.task("a"), pool.task("stands", standing=True)
    pool.add("a", 4)
    pool.run(200)
    assert pool.groups("stands") == 2
    pool.run(400)
    assert (pool.groups("a"), pool.groups("stands")) == (2, 2)


def test_nobody_gives_way_to_a_task_that_has_got_what_it_wanted():
    pool = Pool(nodes=2, work=60)
    pool.task("low"), pool.task("high", priority=1)
    pool.add("low", 100)
    pool.run(80)
    pool.add("high", 1)
    pool.run(40, lambda p: any(g.give_way for g in p.state.groups.values()))
    assert any(group.give_way for group in pool.state.groups.values())
    pool.send(Registered("new", CARD, HERE), Proved("new", True), Beats(["new"]))
    pool.run(10)
    assert pool.groups("high") == 1
    assert not any(group.give_way for group in pool.state.groups.values())
