"""Both policies on the same fleet with the same troubles."""

import random
from collections.abc import Callable
from typing import Any

from infra.pool.simulation.fleet import MODELS, Machine, Troubles, synthetic2
from infra.pool.simulation.original import Original
from infra.pool.simulation.ours import Ours
from infra.pool.simulation.world import World

POLICIES = ("ours", "original")


def simulate(
    policy: str,
    seed: int,
    hours: float,
    troubles: Troubles,
    shard_seconds: float,
    fleet: Callable[[random.Random, Troubles], list[Machine]] = synthetic2,
) -> dict[str, Any]:
    """One run; the account's summary. The same seed gives the same machines and troubles' rates."""
    machines = fleet(random.Random(seed), troubles)
    ours = policy == "ours"
    world = World(
        machines,
        Ours(MODELS)
        if ours
        else Original(MODELS, random.Random(seed + 1), troubles.operator_seconds),
        troubles,
        random.Random(seed + 2),
        shard_seconds=shard_seconds,
        requeues=ours,
        keeps_engine=ours,
    )
    return world.run(hours * 3600.0).summary()
