"""Which nodes a node measures before it is in a group with them.

A few of those that said where they can be reached, out of a sample: first those that it has not
measured, nearest first. Told with a heartbeat now and then, and not by the etag: a node goes on
with the last ones.
"""

import random
import time

from infra.pool.core.distance import apart
from infra.pool.core.state import NodeState
from infra.pool.service.pool import Pool

MOST = 8
_SAMPLE = 64
_AGAIN = 300.0
"""Seconds after which a node gets others."""
_UP = frozenset({NodeState.HEALTHY, NodeState.WAITING})


class Neighbours:
    """Those of one pool's nodes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reachable: list[str] = []
        self._looked = float("-inf")
        self._told: dict[str, float] = {}

    def of(self, node_id: str) -> list[str] | None:
        """Ids for a node; None: the same as before."""
        now, state = time.monotonic(), self._pool.state
        if now - self._looked >= state.settings.heartbeat:
            self._looked = now
            self._reachable = [
                known for known, card in self._pool.cards.items()
                if card.port and known in state.nodes and state.nodes[known].state in _UP
            ]  # fmt: skip
            self._told = {known: at for known, at in self._told.items() if at > now - _AGAIN}
        if node_id in self._told or not self._reachable:
            return None
        node = state.nodes[node_id]
        some = random.sample(self._reachable, min(_SAMPLE, len(self._reachable)))
        others = [state.nodes[other] for other in some if other in state.nodes and other != node_id]
        others.sort(key=lambda other: (other.node_id in node.rtt_ms, apart(node, other)))
        if len(others) >= MOST:
            # With fewer it is told of each one that comes.
            self._told[node_id] = now
        return [other.node_id for other in others[:MOST]]
