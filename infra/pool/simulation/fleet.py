"""The machines, the models and the troubles of a simulated run.

The fleet is SYNTHETIC-2's: 49 nodes of 8xH200, 43 of 8xH100, the rest of 1,253 GPUs as single
cards. Where it stood, and how often nodes left, is not published: places and rates are assumptions,
stated here and printed with the results.
"""

import random
from dataclasses import dataclass, field

from infra.pool.core.requirements import Specs, named_topology

PLACES = {
    "Ashburn": (39.0, -77.5),
    "Dallas": (32.8, -96.8),
    "San Jose": (37.3, -121.9),
    "Montreal": (45.5, -73.6),
    "Frankfurt": (50.1, 8.7),
    "Paris": (48.9, 2.4),
    "Helsinki": (60.2, 24.9),
    "London": (51.5, -0.1),
    "Singapore": (1.3, 103.8),
    "Tokyo": (35.7, 139.7),
}

H200 = Specs(8, "NVIDIA H200", 141_000, 192, 2_000_000, 20_000)
H100 = Specs(8, "NVIDIA H100 80GB HBM3", 80_000, 192, 2_000_000, 20_000)
RTX4090 = Specs(1, "NVIDIA GeForce RTX 4090", 24_000, 16, 64_000, 1_000)
RTX3090 = Specs(1, "NVIDIA GeForce RTX 3090", 24_000, 16, 64_000, 1_000)
RATES = {H200: 8.0, H100: 8.0, RTX4090: 1.0, RTX3090: 0.7}
"""Relative throughput: a shard takes its model's time divided by that of the slowest member."""


@dataclass(frozen=True)
class Model:
    """A workload and what it costs to run."""

    name: str
    topologies: tuple[str, ...]
    load_seconds: float
    """From disk to memory, the engine's start included."""
    download_seconds: float
    """When it is not on disk yet."""
    weight: float = 1.0


TOPOLOGIES = {
    name: named_topology(name, size, size, requirement)
    for name, size, requirement in (
        ("1xH200", 1, "gpu:count=8;gpu:model=h200"),
        ("2xH100", 2, "gpu:count=8;gpu:model=h100"),
        ("4x24GB", 4, "gpu:count=1;gpu:memory_mb_min=24000"),
        ("1x24GB", 1, "gpu:count=1;gpu:memory_mb_min=24000"),
    )
}
"""As an operator would configure them: an NxMGB name alone lets an H200 node serve a 4B model."""

MODELS = (
    Model("DeepSeek-R1-0528", ("1xH200", "2xH100"), 420.0, 1800.0),
    Model("Qwen3-32B", ("4x24GB",), 120.0, 900.0),
    Model("Qwen3-4B", ("1x24GB",), 60.0, 300.0),
)


@dataclass(frozen=True)
class Troubles:
    """Rates per node and hour, times in seconds."""

    churn: float = 0.05
    """Sudden losses: the process and what it had in memory are gone."""
    return_seconds: float = 3600.0
    """Mean time until a lost node is back, exponential."""
    partitions: float = 0.02
    partition_median: float = 40.0
    partition_sigma: float = 0.9
    """Log-normal; the node goes on working, its heartbeats and its links to peers do not pass."""
    stragglers: float = 0.01
    straggle_seconds: float = 1800.0
    straggle_factor: float = 0.4
    liars: float = 0.01
    """Share of nodes whose results are refused from the first on."""
    false_refusals: float = 0.001
    """Share of honest results that are refused softly: the work is void, one member is to blame."""
    verdict_seconds: float = 120.0
    operator_seconds: float = 7200.0
    """Until somebody dissolves by hand a group that the original leaves broken."""


@dataclass
class Machine:
    """One node as it really is."""

    node_id: str
    specs: Specs
    place: tuple[float, float]
    rate: float
    liar: bool
    online: bool = True
    cut_off_until: float = 0.0
    slow_until: float = 0.0
    disk: set[str] = field(default_factory=set)
    loaded: tuple[str, int, int] | None = None
    loading: tuple[str, int, int] | None = None
    loading_until: float = 0.0
    standby: tuple[str, int, int] | None = None
    part_of: tuple[str, int] | None = None
    """(group, version) as it last heard; it acts on this, not on what the pool knows meanwhile."""
    excluded: bool = False
    booked_until: float = 0.0
    """Up to when its time without a group is in the account."""
    full_beat_at: float = -1e9

    @property
    def gpus(self) -> int:
        """Cards, the unit of the account."""
        return self.specs.gpu_count


def synthetic2(rng: random.Random, troubles: Troubles) -> list[Machine]:
    """The fleet of SYNTHETIC-2."""
    kinds = [H200] * 49 + [H100] * 43
    singles = 1253 - 8 * len(kinds)
    kinds += [RTX4090 if rng.random() < 0.6 else RTX3090 for _ in range(singles)]
    places = list(PLACES.values())
    return [
        Machine(
            node_id=f"n{number:04d}",
            specs=specs,
            place=rng.choice(places),
            rate=RATES[specs],
            liar=rng.random() < troubles.liars,
        )
        for number, specs in enumerate(kinds)
    ]
