"""Single nodes merge where the measured gain pays for loading again, and only then."""

import pytest

from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    GroupDestroyed,
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


def shapes_after(seconds: int, pair_cost: float | None, shards: int = 4000, load: int = 60):
    """Two single nodes of a task that would rather have a pair; a shard takes one 100 s."""
    state, effects, now = PoolState(), [], 0.0

    def send(*events: object) -> None:
        nonlocal state
        for event in events:
            state, found = decide(state, event, now)  # type: ignore[arg-type]
            effects.extend(found)

    shapes = tuple(parse_topology(name, {}) for name in ("2x24GB", "1x24GB"))
    send(TaskCreated(Task("t", "t", "m", shapes)))
    send(ShardsAdded("t", tuple(f"s{number}" for number in range(shards))))
    for name in ("a", "b"):
        send(Registered(name, CARD, (50.0, 8.0)), Proved(name, True), Beats([name]), Tick())
    if pair_cost is not None:
        state.tasks["t"].shard_cost["2x24GB"] = pair_cost
    begun: dict[tuple[str, str], float] = {}
    while now < seconds:
        now += 5.0
        send(Beats(["a", "b"]), Tick())
        for group in list(state.groups.values()):
            loaded = now - group.created_at >= load
            for member in list(group.members):
                send(Beat(member, group.group_id, group.version if loaded else -1, group.shard_id))
            if group.shard_id:
                since = begun.setdefault((group.group_id, group.shard_id), now)
                cost = 100.0 if len(group.members) == 1 else (pair_cost or 100.0) / 2
                if now - since >= cost:
                    send(Submitted(group.group_id, group.shard_id))
    ended = sum(isinstance(effect, GroupDestroyed) for effect in effects)
    return sorted(len(group.members) for group in state.groups.values()), ended


def test_they_merge_where_it_pays_and_stay_merged():
    assert shapes_after(3000, pair_cost=60.0) == ([2], 2)


@pytest.mark.parametrize(
    "case",
    [
        {"pair_cost": None},
        {"pair_cost": 99.0},
        {"pair_cost": 130.0},
        {"pair_cost": 60.0, "shards": 41},
        {"pair_cost": 60.0, "load": 1500},
    ],
    ids=["not measured", "gains nothing", "loses", "little work is left", "loads for long"],
)
def test_they_stay_alone_where_it_does_not(case):
    assert shapes_after(3000, **case) == ([1, 1], 0)


def test_not_before_they_are_old_enough():
    assert shapes_after(1500, pair_cost=60.0) == ([1, 1], 0)
