"""A pool of very many nodes: how long the core takes to form all groups, and for one tick then."""

import random
import resource
import time

from infra.pool.core.decide import decide
from infra.pool.core.events import (
    Beat,
    Beats,
    Proved,
    Registered,
    ShardsAdded,
    TaskCreated,
    Tick,
)
from infra.pool.core.state import PoolState, Task
from infra.pool.simulation.fleet import H100, H200, MODELS, PLACES, RTX4090, TOPOLOGIES

TICK = 2.0
"""Seconds between ticks of the service."""


def crowd(nodes: int, seed: int) -> dict[str, float | int]:
    """Figures for `nodes` nodes: seconds of one core, and the process's memory."""
    rng, places = random.Random(seed), list(PLACES.values())
    state, now = PoolState(), 0.0
    for number, model in enumerate(MODELS):
        shapes = tuple(TOPOLOGIES[name] for name in model.topologies)
        state, _ = decide(state, TaskCreated(Task(f"t{number}", model.name, model.name, shapes)), 0)
        names = tuple(f"t{number}-{n}" for n in range(nodes))
        state, _ = decide(state, ShardsAdded(f"t{number}", names), now)
    for number in range(nodes):
        node_id, specs = f"n{number}", rng.choice((H200, H100, RTX4090, RTX4090))
        state, _ = decide(state, Registered(node_id, specs, rng.choice(places), node_id), now)
        state, _ = decide(state, Proved(node_id, True, 1.0), now)
    everybody = list(state.nodes)
    state, _ = decide(state, Beats(everybody), now)
    started = time.process_time()
    state, _ = decide(state, Tick(), now)
    formation = time.process_time() - started
    for node_id in everybody:
        group = state.groups.get(state.nodes[node_id].group_id)
        if group is not None:
            state, _ = decide(state, Beat(node_id, group.group_id, group.version), now)
    ticks, beats = [], []
    for _ in range(30):
        now += TICK
        share = everybody[int(now / TICK) % 5 :: 5]
        started = time.process_time()
        state, _ = decide(state, Beats(share), now)
        beats.append(time.process_time() - started)
        for node_id in share[:200]:
            group = state.groups.get(state.nodes[node_id].group_id)
            if group is not None:
                report = Beat(node_id, group.group_id, group.version, group.shard_id, 0.5)
                state, _ = decide(state, report, now)
        started = time.process_time()
        state, _ = decide(state, Tick(), now)
        ticks.append(time.process_time() - started)
    return {
        "nodes": nodes,
        "groups": len(state.groups),
        "cold_formation_s": formation,
        "steady_tick_max_s": max(ticks[1:]),
        "steady_tick_median_s": sorted(ticks[1:])[len(ticks) // 2],
        "heartbeats_per_s": len(everybody) / 5 / (sorted(beats)[len(beats) // 2]),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
