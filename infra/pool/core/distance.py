"""How far and how alike two nodes are.

A measured round trip counts; without one, the great-circle distance gives an estimate: light in
glass covers 100 km there and back in 1 ms, real routes are about half again as long, and 5 ms go in
the last miles. Two nodes without places may be anywhere: they are behind all known pairs that the
default cap allows. A node without a place is never in reach of one that has one.
"""

import math
from functools import lru_cache

from infra.pool.core.state import Node, Settings

EARTH_KM = 6371.0
UNKNOWN_MS = 150.0


def apart(a: Node, b: Node) -> float:
    """Round trip in milliseconds between two nodes, measured or estimated."""
    if a is b:
        return 0.0
    measured = [m for m in (a.rtt_ms.get(b.node_id), b.rtt_ms.get(a.node_id)) if m is not None]
    if measured:
        # Each side may claim what it likes; being far cannot be faked away by one of them.
        return max(measured)
    if a.location is None and b.location is None:
        return UNKNOWN_MS
    if a.location is None or b.location is None:
        return math.inf
    return 5.0 + 1.5 * haversine_km(a.location, b.location) / 100.0


@lru_cache(1 << 17)
def haversine_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Great-circle distance of two (latitude, longitude) in degrees."""
    lat1, lon1, lat2, lon2 = (math.radians(value) for value in (*a, *b))
    h = (
        math.sin((lat2 - lat1) / 2) ** 2
        + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(h)))


def together(node: Node, others: list[Node], settings: Settings) -> bool:
    """Whether a node may be in a group with all the others: near enough and alike enough."""
    return all(
        similar(node, other, settings.max_rate_ratio) and apart(node, other) <= settings.max_rtt_ms
        for other in others
    )


def similar(a: Node, b: Node, ratio: float) -> bool:
    """Whether the throughputs differ by at most a factor; an unknown one is similar to all."""
    if not a.rate or not b.rate:
        return True
    return max(a.rate, b.rate) <= ratio * min(a.rate, b.rate)
