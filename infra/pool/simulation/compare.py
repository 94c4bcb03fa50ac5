"""One policy on the SYNTHETIC-2 fleet, or both with the same seed."""

import random
from collections.abc import Callable
from typing import Any

from infra.pool.simulation.fleet import MODELS, Machine, Troubles, synthetic2
from infra.pool.simulation.original import Original
from infra.pool.simulation.ours import Ours, Signals
from infra.pool.simulation.policy import Policy
from infra.pool.simulation.world import World

POLICIES = ("ours", "original")

SHARD_SECONDS = {"ours": 300.0, "original": 1800.0}
"""Usual work between two results. The original lets a node upload two files an hour unless it is
configured otherwise, so a file is half an hour's work there."""


def simulate(
    policy: str,
    seed: int,
    hours: float,
    troubles: Troubles,
    shard_seconds: float | None = None,
    fleet: Callable[[random.Random, Troubles], list[Machine]] = synthetic2,
    signals: Signals | None = None,
) -> dict[str, Any]:
    """The account of one run. The same seed gives the same machines and the same first troubles.

    `signals`: what our agents tell; by default all that the pool can use.
    """
    machines = fleet(random.Random(seed), troubles)
    ours = policy == "ours"
    pool: Policy = (
        Ours(MODELS, signals=signals)
        if ours
        else Original(MODELS, random.Random(seed + 1), troubles.operator_seconds)
    )
    world = World(
        machines,
        pool,
        troubles,
        random.Random(seed + 2),
        shard_seconds=SHARD_SECONDS[policy] if shard_seconds is None else shard_seconds,
        requeues=ours,
        keeps_engine=ours,
    )
    return world.run(hours * 3600.0).summary()
