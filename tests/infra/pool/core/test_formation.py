"""Who is put together: near enough and alike enough, each with each."""

from itertools import combinations

import pytest

from infra.pool.core.decide import decide
from infra.pool.core.distance import apart, similar
from infra.pool.core.events import Beat, Beats, Proved, Registered, ShardsAdded, TaskCreated, Tick
from infra.pool.core.requirements import Specs, parse_topology
from infra.pool.core.state import PoolState, Task

CARD = Specs(1, "RTX 4090", 24_000)
FRANKFURT, SAN_JOSE, SINGAPORE = (50.1, 8.7), (37.3, -121.9), (1.3, 103.8)
BERLIN = (52.5, 13.4)


def formed(nodes, shape, rtt=()):
    """Members of the groups that a task with many shards gets; nodes: (place, rate)."""
    state = PoolState()
    for number, (place, rate) in enumerate(nodes):
        name = f"n{number}"
        for event in (Registered(name, CARD, place), Proved(name, True, rate), Beats([name])):
            state, _ = decide(state, event, 0.0)
    for a, b, milliseconds in rtt:
        state, _ = decide(state, Beat(a, rtt_ms=((b, milliseconds),)), 0.0)
    task = Task("t", "t", "m", (parse_topology(shape, {}),))
    for event in (TaskCreated(task), ShardsAdded("t", ("s0", "s1", "s2", "s3")), Tick()):
        state, _ = decide(state, event, 0.0)
    return state, sorted(sorted(group.members) for group in state.groups.values())


def test_rates_are_alike_each_with_each_not_only_with_the_first():
    nodes = [(FRANKFURT, rate) for rate in (1.0, 1.5, 0.65)]
    _, groups = formed(nodes, "3x24GB")
    assert groups == []
    _, groups = formed([*nodes, (FRANKFURT, 1.2)], "3x24GB")
    assert groups == [["n0", "n1", "n3"]]


def test_round_trips_are_capped_each_with_each():
    """Both are within the cap of the first, but not of each other."""
    nodes = [(FRANKFURT, 1.0)] * 3
    far = [("n0", "n1", 140.0), ("n0", "n2", 140.0), ("n1", "n2", 290.0)]
    _, groups = formed(nodes, "3x24GB", far)
    assert groups == []


def test_every_group_of_a_mixed_crowd_keeps_the_caps():
    places = [FRANKFURT, BERLIN, SAN_JOSE, SINGAPORE, (35.7, 139.7), (-33.9, 151.2)]
    nodes = [(places[n * 7 % 6], 0.5 + n * 13 % 10 / 4) for n in range(60)]
    state, groups = formed(nodes, "4x24GB")
    assert len(groups) == 4
    for group in groups:
        for a, b in combinations([state.nodes[member] for member in group], 2):
            assert apart(a, b) <= state.settings.max_rtt_ms
            assert similar(a, b, state.settings.max_rate_ratio)


@pytest.mark.parametrize("places", [(FRANKFURT, None), (None, FRANKFURT)])
def test_a_node_without_a_place_goes_with_none_that_has_one(places):
    nodes = [(place, 1.0) for place in places]
    assert formed(nodes, "2x24GB")[1] == []
    # A measured round trip is worth more than any place.
    assert formed(nodes, "2x24GB", [("n0", "n1", 20.0)])[1] == [["n0", "n1"]]


def test_nodes_without_places_go_together():
    assert formed([(None, 1.0)] * 2, "2x24GB")[1] == [["n0", "n1"]]
    nodes = [(None, 1.0), (FRANKFURT, 1.0), (None, 1.0), (BERLIN, 1.0)]
    assert formed(nodes, "2x24GB")[1] == [["n0", "n2"], ["n1", "n3"]]
