"""Heartbeats: thousands each second, taken and answered past the framework's own machinery.

`answer` is the route of `limits.Straight` for it; FastAPI knows it only to describe it.
"""

import time

from fastapi import Request, Response
from pydantic import ValidationError

from infra.pool import wire
from infra.pool.core.events import Beat
from infra.pool.core.state import Node
from infra.pool.service.errors import BadRequest, Forbidden
from infra.pool.service.gate import Gate
from infra.pool.service.neighbours import Neighbours
from infra.pool.service.pool import Pool, Report
from infra.pool.service.view import heartbeat_data, named, peer


class Heartbeats:
    """Those of one pool's nodes."""

    def __init__(self, pool: Pool, gate: Gate) -> None:
        self._pool, self._gate = pool, gate
        self._neighbours = Neighbours(pool)
        self._earlier: dict[str, tuple[str, int, int]] = {}
        """Node -> (group, its version, uploads that the node made in it before that version)."""

    async def answer(self, request: Request) -> Response:
        """Alive; what is there to do?"""
        pool = self._pool
        node_id = await self._gate.node(request)
        try:
            body = wire.Heartbeat.model_validate_json(request.scope["tracemill.body"])
        except ValidationError as error:
            raise BadRequest(f"body: {error}"[:2000], "INVALID_BODY") from error
        if body.address != node_id:
            raise Forbidden("the body names another node than the one that signed", "OTHER_NODE")
        self._gate.in_order(node_id, request.scope["tracemill.time_ms"])
        _take(pool, body)
        deadline = time.monotonic() + body.wait_seconds
        with pool.watch(node_id) as watch:
            text, name = named(await self.told(node_id))
            while name == body.seen and (left := pool.left(deadline)) > 0:
                await watch.wait(left)
                text, name = named(await self.told(node_id))
        near = self._near(node_id)
        await pool.journal.settled()
        answer = f'{{"success":true,"data":{text},"etag":"{name}"{near}}}'
        return Response(answer, media_type="application/json")

    def _near(self, node_id: str) -> str:
        found = self._neighbours.of(node_id)
        if found is None:
            return ""
        told = ",".join(peer(self._pool, other).model_dump_json() for other in found)
        return f',"neighbours":[{told}]'

    async def told(self, node_id: str) -> wire.HeartbeatData:
        """What a node has to do now."""
        node = self._node(node_id)
        group = self._pool.state.groups.get(node.group_id)
        earlier = 0
        while group is not None and group.version > 0:
            known = self._earlier.get(node_id)
            if known is not None and known[:2] == (group.group_id, group.version):
                earlier = known[2]
                break
            version = group.version
            count = await self._pool.store.uploads_before(node_id, group.group_id, version)
            self._earlier[node_id] = (group.group_id, version, count)
            node = self._node(node_id)
            group = self._pool.state.groups.get(node.group_id)
        return heartbeat_data(self._pool, node, earlier)

    def _node(self, node_id: str) -> Node:
        node = self._pool.state.nodes.get(node_id)
        if node is None:
            raise Forbidden("this node was forgotten: PUT /nodes", "UNKNOWN_NODE")
        return node


def _take(pool: Pool, body: wire.Heartbeat) -> None:
    node_id = body.address
    pool.beats[node_id] += 1
    card = pool.cards[node_id]
    if body.p2p_id is not None and body.p2p_id != card.p2p_id:
        pool.cards[node_id] = card.model_copy(update={"p2p_id": body.p2p_id})
        pool.journal.touch("card", node_id)
    pool.reports[node_id] = Report(
        task_id=body.task_id,
        task_state=body.task_state,
        task_details=body.task_details,
        version=body.version,
    )
    if body.metrics is not None:
        pool.metrics[node_id] = _metrics(body.metrics)
    pool.decide(
        Beat(
            node_id,
            body.group_id,
            body.group_version,
            body.shard_id,
            body.progress,
            None if body.models is None else frozenset(body.models),
            tuple(body.rtt_ms.items()),
            tuple(body.lost_peers),
            body.standing_by,
        )
    )


def _metrics(said: list[wire.Metric]) -> dict[tuple[str, str], float]:
    """What replaces a node's earlier figures; of a progress label the highest stands."""
    found: dict[tuple[str, str], float] = {}
    for metric in said:
        label = metric.key.label.replace(":", "")
        if not label:
            raise BadRequest(f"metric label {metric.key.label!r} is empty without colons")
        key = (metric.key.task_id or "manual", label)
        known = found.get(key, metric.value)
        found[key] = max(known, metric.value) if "dashboard-progress" in label else metric.value
    return found
