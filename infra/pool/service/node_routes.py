"""Routes of nodes; each request is signed by the node's key."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from infra.pool import wire
from infra.pool.core import leases
from infra.pool.core.events import Failed, Gone, Leaving, Submitted
from infra.pool.core.state import Group, NodeState, Shard
from infra.pool.ledger import Work
from infra.pool.service.admission import Admission
from infra.pool.service.errors import Conflict, Forbidden, NotThere
from infra.pool.service.gate import Gate
from infra.pool.service.heartbeats import Heartbeats
from infra.pool.service.pool import Pool
from infra.pool.service.uploads import Uploads
from infra.pool.service.view import named

HEARTBEAT_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Heartbeat"}}},
    }
}
"""For OpenAPI: heartbeats.py parses it by itself."""
Certify = Callable[[str], tuple[str, str]]
"""(certificate of a node, certificate of the CA) in PEM; empty texts without TLS."""


def node_routes(
    pool: Pool,
    gate: Gate,
    heartbeats: Heartbeats,
    admission: Admission,
    uploads: Uploads,
    certify: Certify,
) -> APIRouter:
    """What nodes ask for."""
    router = APIRouter(tags=["nodes"])
    NodeId = Annotated[str, Depends(gate.node)]
    Signer = Annotated[str, Depends(gate.signer)]

    router.post("/heartbeat", response_model=wire.HeartbeatAnswer, openapi_extra=HEARTBEAT_BODY)(
        heartbeats.answer
    )

    @router.put("/nodes")
    async def register(
        body: wire.RegisterRequest, node_id: Signer, request: Request
    ) -> wire.Registration:
        """Join with an invite, or start again."""
        if body.id != node_id:
            raise Forbidden("the body names another node than the one that signed", "OTHER_NODE")
        state = admission.register(body, request.client.host if request.client else "")
        await pool.journal.settled()
        certificate, ca = certify(node_id)
        return wire.Registration(
            state=state,
            challenge=state is NodeState.DISCOVERED,
            heartbeat_seconds=pool.state.settings.heartbeat,
            certificate=certificate,
            ca=ca,
        )

    @router.post("/nodes/challenge")
    async def challenge(node_id: NodeId) -> wire.ChallengeOffer:
        """Begin the proof of compute."""
        return admission.offer(node_id)

    @router.post("/nodes/challenge/commit")
    async def commit(body: wire.ChallengeCommit, node_id: NodeId) -> wire.ChallengeReveal:
        """Commit to the product."""
        return admission.commit(node_id, body)

    @router.post("/nodes/challenge/answer")
    async def answer(body: wire.ChallengeAnswer, node_id: NodeId) -> wire.Admission:
        """Open the rows that were asked for."""
        admitted = await admission.answer(node_id, body)
        await pool.journal.settled()
        return admitted

    @router.post("/nodes/canary")
    async def canary(body: wire.CanaryResult, node_id: NodeId) -> wire.Admission:
        """Hand in the canary shard."""
        admitted = admission.canary(node_id, body)
        await pool.journal.settled()
        return admitted

    @router.post("/nodes/orders/{order_id}")
    async def order(order_id: str, body: wire.OrderAnswer, node_id: NodeId) -> wire.Done:
        """Answer an order."""
        known = pool.orders.get(node_id, [])
        if all(item.order_id != order_id for item in known):
            raise NotThere(f"there is no order {order_id[:80]!r} for this node")
        pool.orders[node_id] = [item for item in known if item.order_id != order_id]
        pool.order_answers[order_id] = body.text
        pool.wake([f"order:{order_id}", node_id])
        return wire.Done()

    @router.post("/nodes/leave")
    async def leave(node_id: NodeId) -> wire.Done:
        """Stop after the shard in hand."""
        pool.decide(Leaving(node_id))
        await pool.journal.settled()
        return wire.Done()

    @router.post("/nodes/gone")
    async def gone(node_id: NodeId) -> wire.Done:
        """Stop now."""
        pool.decide(Gone(node_id))
        await pool.journal.settled()
        return wire.Done()

    @router.get("/shards/{shard_id}")
    async def shard(shard_id: str, node_id: NodeId) -> wire.ShardWork:
        """What to do."""
        _, found = _leased(pool, node_id, shard_id)
        payload = await pool.store.payload(shard_id)
        return wire.ShardWork(shard_id=shard_id, task_id=found.task_id, payload=payload)

    @router.post("/shards/{shard_id}/result")
    async def result(
        shard_id: str, body: wire.ShardResult, node_id: NodeId
    ) -> wire.HeartbeatAnswer:
        """A shard is done; a verdict is wanted. The second time it changes nothing."""
        if _handed_in(pool, shard_id, body.group_id):
            return await _next(node_id)
        group, _ = _leased(pool, node_id, shard_id, body.group_id)
        await uploads.check_granted(body.files, group)
        # Looking at the objects took time: the lease may be another's by now.
        group, found = _leased(pool, node_id, shard_id, body.group_id)
        pool.decide(Submitted(group.group_id, shard_id))
        row = wire.ResultRow(
            seq=0,
            shard_id=shard_id,
            state="submitted",
            group_id=group.group_id,
            node_ids=list(group.members),
            node_id=node_id,
            output=body.output,
            files=body.files,
            seconds=body.seconds,
        )
        pool.add_result(found.task_id, row)
        pool.record(
            Work(
                task_id=found.task_id,
                shard_id=shard_id,
                nodes=tuple(group.members),
                group_id=group.group_id,
                files={file.name: file.sha256 for file in body.files},
                seconds=body.seconds,
            )
        )
        return await _next(node_id)

    @router.post("/shards/{shard_id}/failure")
    async def failure(
        shard_id: str, body: wire.ShardFailure, node_id: NodeId
    ) -> wire.HeartbeatAnswer:
        """A shard could not be done."""
        _leased(pool, node_id, shard_id, body.group_id)
        reason = f"{body.kind}: {body.reason}" if body.kind else body.reason
        pool.decide(Failed(body.group_id, shard_id, node_id, body.cause, reason))
        return await _next(node_id)

    @router.post("/storage/request-upload")
    async def request_upload(
        body: wire.UploadRequest, node_id: NodeId, request: Request
    ) -> wire.UploadGrant:
        """Where to put an object."""
        base = pool.settings.url or str(request.base_url).rstrip("/")
        return await uploads.grant(pool.state.nodes[node_id], body, base)

    async def _next(node_id: str) -> wire.HeartbeatAnswer:
        data = await heartbeats.told(node_id)
        await pool.journal.settled()
        return wire.HeartbeatAnswer(data=data, etag=named(data)[1])

    return router


def _leased(pool: Pool, node_id: str, shard_id: str, group_id: str = "") -> tuple[Group, Shard]:
    """The node's group and the shard that it has a lease on."""
    node = pool.state.nodes.get(node_id)
    group = pool.state.groups.get(node.group_id) if node else None
    shard = pool.state.shards.get(shard_id)
    if shard is None:
        raise NotThere(f"there is no shard {shard_id[:80]!r}")
    if group is None or (group_id and group.group_id != group_id):
        raise Conflict("the node is not in this group any more", "NO_LEASE")
    if group.shard_id != shard_id or leases.lease_of(shard, group.group_id) is None:
        raise Conflict("the node's group has no lease on this shard", "NO_LEASE")
    return group, shard


def _handed_in(pool: Pool, shard_id: str, group_id: str) -> bool:
    """Whether a group's result is here: its member did not learn it, and asks again."""
    shard = pool.state.shards.get(shard_id)
    return shard is not None and (group_id in shard.submitted_by or shard.accepted_by == group_id)
