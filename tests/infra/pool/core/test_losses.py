"""Shards that take their nodes down, nodes that take their shards down, and plain bad luck."""

from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    Failed,
    Gone,
    Judged,
    Proved,
    Registered,
    ShardsAdded,
    Submitted,
    TaskCreated,
    Tick,
)
from infra.pool.core.requirements import Specs
from infra.pool.core.state import NodeState, PoolState, ShardState, Task


class Play:
    """A pool of single nodes whose shards end as a function of (node, shard) says."""

    def __init__(self, nodes: int, shards: int) -> None:
        self.state, self.now = PoolState(), 0.0
        self.send(TaskCreated(Task("t", "t", "m", ())))
        self.send(ShardsAdded("t", tuple(f"s{number}" for number in range(shards))))
        for number in range(nodes):
            self.join(f"n{number}")

    def send(self, event: object) -> None:
        self.state, _ = decide(self.state, event, self.now)  # type: ignore[arg-type]

    def join(self, node_id: str) -> None:
        self.send(Registered(node_id, Specs()))
        self.send(Proved(node_id, True))
        self.send(Beats([node_id]))

    def shard(self, number: int):
        return self.state.shards[f"s{number}"]

    def rounds(self, count: int, outcome) -> None:
        """outcome(node, shard) -> done, progress, infra, user, config, gone."""
        for _ in range(count):
            self.now += 1
            self.send(Beats(list(self.state.nodes)))
            self.send(Tick())
            for group in list(self.state.groups.values()):
                if group.group_id not in self.state.groups:
                    continue
                (node,), shard = group.members, group.shard_id
                self.send(Beat(node, group.group_id, group.version))
                if not shard:
                    continue
                said = outcome(node, shard)
                if said == "done":
                    self.send(Submitted(group.group_id, shard))
                    self.send(Judged(shard, group.group_id, True))
                elif said == "progress":
                    self.send(Beat(node, group.group_id, group.version, shard, 0.1))
                elif said in ("infra", "user", "config"):
                    self.send(Failed(group.group_id, shard, node, said, "it died"))
                elif said == "gone":
                    self.send(Gone(node))
                    self.join(node)


def test_a_shard_that_kills_its_nodes_ends_and_they_are_forgiven():
    play = Play(nodes=20, shards=400)
    play.rounds(60, lambda node, shard: "infra" if shard in ("s3", "s200") else "done")
    for number in (3, 200):
        assert play.shard(number).state is ShardState.FAILED
        assert play.shard(number).reason.startswith("infra: ")
        assert "it died" in play.shard(number).reason
        assert 3 <= len(play.shard(number).lost_by) == len(set(play.shard(number).lost_by)) < 10
    assert sum(s.state is ShardState.DONE for s in play.state.shards.values()) == 398
    assert all(node.state is NodeState.HEALTHY for node in play.state.nodes.values())
    assert all(node.strikes == 0 for node in play.state.nodes.values())


def test_a_node_that_loses_every_shard_goes_and_no_shard_ends():
    play = Play(nodes=5, shards=100)
    play.rounds(60, lambda node, shard: "infra" if node == "n2" else "done")
    assert play.state.nodes["n2"].state is NodeState.EJECTED
    assert all(shard.state is ShardState.DONE for shard in play.state.shards.values())


def test_machines_that_come_and_go_end_no_shard():
    play, seen = Play(nodes=10, shards=300), dict[str, int]()

    def outcome(node: str, shard: str) -> str:
        seen[shard] = seen.get(shard, 0) + 1
        # Every fourth shard loses its machine once, some four times in a row.
        number = int(shard[1:])
        lost = 4 if number % 50 == 7 else int(number % 4 == 0)
        return "gone" if seen[shard] <= lost else "done"

    play.rounds(120, outcome)
    assert all(shard.state is ShardState.DONE for shard in play.state.shards.values())


def test_it_ends_where_there_is_one_node_only():
    play = Play(nodes=1, shards=1)
    play.rounds(60, lambda node, shard: "gone")
    assert play.shard(0).state is ShardState.FAILED
    assert len(play.shard(0).lost_by) == play.state.settings.infra_losses


def test_a_node_that_calls_every_shard_faulty_keeps_none_from_others():
    """It fails at once and is free at once; before, it got the same shard again and again."""
    play, begun = Play(nodes=2, shards=20), dict[str, int]()

    def outcome(node: str, shard: str) -> str:
        if node == "n1":
            return "user"
        begun[shard] = begun.get(shard, 0) + 1
        return "done" if begun[shard] > 3 else "busy"

    play.rounds(120, outcome)
    assert all(shard.state is ShardState.DONE for shard in play.state.shards.values())
    assert all(len(shard.user_failures) <= 3 for shard in play.state.shards.values())


def test_round_trips_that_a_node_claims_are_few():
    play = Play(nodes=300, shards=1)
    for turn in range(40):
        known = tuple((f"n{number}", 1.0) for number in range(turn * 7, turn * 7 + 20))
        strangers = tuple((f"x{turn}-{number}", 1.0) for number in range(44))
        play.send(Beat("n0", rtt_ms=known + strangers))
    kept = play.state.nodes["n0"].rtt_ms
    assert len(kept) == 256 and set(kept) <= set(play.state.nodes) and "n292" in kept


def test_a_bad_config_stops_the_task_once_most_have_met_it_and_strikes_nobody():
    play = Play(nodes=9, shards=30)
    play.rounds(3, lambda node, shard: "config")
    assert play.state.tasks["t"].stopped == "config: it died"
    assert len(play.state.tasks["t"].config_reports) == 5
    assert all(node.strikes == 0 for node in play.state.nodes.values())


def test_liars_that_blame_the_config_stop_no_task_that_others_work_on():
    for honest in ("done", "progress"):
        play, liars = Play(nodes=9, shards=30), {"n0", "n1", "n2", "n3"}
        play.rounds(12, lambda node, shard: "config" if node in liars else honest)  # noqa: B023
        assert not play.state.tasks["t"].stopped
        assert {
            n for n, node in play.state.nodes.items() if node.state is NodeState.EJECTED
        } == liars


def test_one_node_alone_with_a_bad_config_stops_the_task():
    play = Play(nodes=1, shards=3)
    play.rounds(3, lambda node, shard: "config")
    assert play.state.tasks["t"].stopped
