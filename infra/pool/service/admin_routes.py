"""Routes of the pool's operator; each needs the admin key."""

import asyncio
import time
import uuid
from typing import Any, Literal

from fastapi import APIRouter, Depends

from infra.pool import wire
from infra.pool.core.events import (
    Disbanded,
    Excluded,
)
from infra.pool.core.state import Group, NodeState
from infra.pool.ledger import Record, Slash
from infra.pool.service.admission import Admission
from infra.pool.service.errors import Conflict, NotThere, Unavailable
from infra.pool.service.gate import Gate
from infra.pool.service.pool import Pool
from infra.pool.service.task_routes import need

ORDER_SECONDS = 30.0


class Regroup(wire.Said):
    """Body of POST /groups/force-regroup."""

    configuration_name: wire.ShortText


class LedgerReport(wire.Said):
    """Body of POST /ledger."""

    record: Record


def admin_routes(pool: Pool, gate: Gate, admission: Admission) -> APIRouter:
    """What the operator asks for."""
    router = APIRouter(dependencies=[Depends(gate.admin)], tags=["admin"])

    @router.get("/invites")
    async def invites() -> dict[str, Any]:
        """Invites that are good; without their keys."""
        return {"success": True, "invites": list(pool.invites.values())}

    @router.post("/invites")
    async def invite(body: wire.InviteRequest) -> wire.Invite:
        """A new invite."""
        made = admission.invite(body)
        await pool.journal.settled()
        return made

    @router.delete("/invites/{invite_id}")
    async def withdraw(invite_id: str) -> wire.Done:
        """Withdraw an invite; who is in stays."""
        for hashed in [h for h, row in pool.invites.items() if row.invite_id == invite_id]:
            del pool.invites[hashed]
            pool.journal.touch("invite", hashed)
        await pool.journal.settled()
        return wire.Done()

    @router.get("/nodes")
    async def nodes(include_dead: bool = False) -> dict[str, Any]:
        """All nodes, and how many there are in each state."""
        counts: dict[str, int] = {}
        views = []
        for node in pool.state.nodes.values():
            counts[node.state] = counts.get(node.state, 0) + 1
            if include_dead or node.state is not NodeState.DEAD:
                views.append(_node_view(pool, node.node_id))
        return {"success": True, "nodes": views, "counts": counts}

    @router.post("/nodes/{node_id}/ban")
    async def ban(node_id: str, body: wire.Exclusion | None = None) -> wire.Done:
        """Exclude a node for good."""
        said = body or wire.Exclusion()
        need(pool.state.nodes, node_id, "node")
        pool.decide(Excluded(node_id, True, said.reason))
        pool.record(Slash(node_id=node_id, reason=said.reason, evidence=said.evidence))
        await pool.journal.settled()
        return wire.Done()

    @router.post("/nodes/{node_id}/eject")
    async def eject(node_id: str, body: wire.Exclusion | None = None) -> wire.Done:
        """Exclude a node."""
        need(pool.state.nodes, node_id, "node")
        pool.decide(Excluded(node_id, False, (body or wire.Exclusion()).reason))
        await pool.journal.settled()
        return wire.Done()

    @router.post("/nodes/{node_id}/restart")
    async def restart(node_id: str) -> wire.Done:
        """Have a node start its task anew; returns when it did."""
        await _order(pool, node_id, "restart")
        return wire.Done()

    @router.get("/nodes/{node_id}/logs")
    async def logs(node_id: str) -> dict[str, Any]:
        """The last words of a node's task."""
        return {"success": True, "logs": await _order(pool, node_id, "logs")}

    @router.get("/nodes/{node_id}/metrics")
    async def node_metrics(node_id: str) -> dict[str, Any]:
        """Figures of a node, by task."""
        need(pool.state.nodes, node_id, "node")
        found: dict[str, dict[str, float]] = {}
        for (task_id, label), value in pool.metrics.get(node_id, {}).items():
            found.setdefault(task_id, {})[label] = value
        return {"success": True, "metrics": found}

    @router.get("/groups")
    async def all_groups() -> dict[str, Any]:
        """All groups."""
        views = [_group_view(group) for group in pool.state.groups.values()]
        return {"success": True, "groups": views, "total_count": len(views)}

    @router.get("/groups/configs")
    async def configs() -> dict[str, Any]:
        """Topologies that are configured or that a task names; enabled: some task names it."""
        named = {t.name: t for task in pool.state.tasks.values() for t in task.topologies}
        texts = {config.name: config for config in pool.settings.topologies}
        return {
            "success": True,
            "configurations": [
                {
                    "name": name,
                    "min_group_size": topology.min_size,
                    "max_group_size": topology.max_size,
                    "compute_requirements": texts[name].compute_requirements
                    if name in texts
                    else f"gpu:total_memory_min={topology.requirement.gpus[0].total_min}",
                    "enabled": name in named,
                }
                for name, topology in (pool.topologies | named).items()
            ],
        }

    @router.delete("/groups/{group_id}")
    async def dissolve(group_id: str) -> wire.Done:
        """Dissolve a group; its shard waits again."""
        need(pool.state.groups, group_id, "group")
        pool.decide(Disbanded(group_id, "by the operator"))
        await pool.journal.settled()
        return wire.Done()

    @router.get("/groups/{group_id}/logs")
    async def group_logs(group_id: str) -> dict[str, Any]:
        """The last words of each member's task."""
        members = list(need(pool.state.groups, group_id, "group").members)
        asked = (_order(pool, node_id, "logs") for node_id in members)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        logs = dict(zip(members, map(str, answers), strict=True))
        return {"success": True, "logs": logs}

    @router.post("/groups/force-regroup")
    async def regroup(body: Regroup) -> dict[str, Any]:
        """Dissolve all groups of a topology."""
        chosen = [g for g in pool.state.groups.values() if g.topology == body.configuration_name]
        known = {t.name for task in pool.state.tasks.values() for t in task.topologies}
        if not chosen and body.configuration_name not in known | set(pool.topologies):
            raise NotThere(f"there is no topology {body.configuration_name!r}")
        affected = [node_id for group in chosen for node_id in group.members]
        for group in chosen:
            pool.decide(Disbanded(group.group_id, "by the operator"))
        await pool.journal.settled()
        ids = [group.group_id for group in chosen]
        return {"success": True, "dissolved_groups": ids, "affected_nodes": affected}

    @router.post("/ledger")
    async def report(body: LedgerReport) -> wire.Done:
        """Record what a validator, an audit or a flow found."""
        pool.record(body.record)
        await pool.journal.settled()
        return wire.Done()

    return router


async def _order(pool: Pool, node_id: str, kind: Literal["restart", "logs"]) -> str:
    """Give a node an order and wait for its answer."""
    node = need(pool.state.nodes, node_id, "node")
    if node.state is not NodeState.HEALTHY:
        raise Conflict(f"the node is {node.state}; it is not there to answer")
    order = wire.Order(order_id=uuid.uuid4().hex, kind=kind)
    pool.orders.setdefault(node_id, []).append(order)
    pool.wake([node_id])
    deadline = time.monotonic() + ORDER_SECONDS
    with pool.watch(f"order:{order.order_id}") as watch:
        while order.order_id not in pool.order_answers:
            left = pool.left(deadline)
            if left <= 0:
                pool.orders[node_id] = [o for o in pool.orders.get(node_id, []) if o is not order]
                raise Unavailable(f"node {node_id} did not answer within {ORDER_SECONDS:g} s")
            await watch.wait(left)
    return pool.order_answers.pop(order.order_id)


def _node_view(pool: Pool, node_id: str) -> dict[str, Any]:
    node, card = pool.state.nodes[node_id], pool.cards[node_id]
    said = pool.reports.get(node_id)
    group = pool.state.groups.get(node.group_id)
    return {
        "address": node_id,
        "ip_address": card.ip_address,
        "port": card.port,
        "status": node.state,
        "task_id": group.task_id if group else None,
        "task_state": said.task_state if said else None,
        "task_details": said.task_details if said else None,
        "version": (said and said.version) or card.version,
        "p2p_id": card.p2p_id,
        "last_status_change": node.since,
        "first_seen": card.first_seen,
        "compute_specs": card.specs,
        "worker_p2p_id": card.p2p_id,
        "worker_p2p_addresses": card.p2p_addresses,
        "location": card.location,
        "trusted": card.trusted,
        "rate": node.rate,
        "rtt_ms": node.rtt_ms,
        "leaving": node.leaving,
        "group": None if group is None else _group_view(group),
    }


def _group_view(group: Group) -> dict[str, Any]:
    return {
        "id": group.group_id,
        "nodes": group.members,
        "node_count": len(group.members),
        "created_at": group.created_at,
        "configuration_name": group.topology,
        "task_id": group.task_id,
        "ready": group.ready_at is not None,
        "shard_id": group.shard_id,
        "version": group.version,
    }
