"""Routes of the pool's operator; each needs the admin key."""

import asyncio
import json
import time
import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from infra.pool import wire
from infra.pool.core.events import (
    Disbanded,
    Dropped,
    Excluded,
    Judged,
    ShardsAdded,
    TaskCreated,
    TaskDeleted,
)
from infra.pool.core.state import Group, NodeState
from infra.pool.ledger import Invalidation, Record, Slash, Verdict
from infra.pool.service.admission import Admission
from infra.pool.service.errors import Conflict, NotThere, Unavailable
from infra.pool.service.gate import Gate
from infra.pool.service.pool import Pool
from infra.pool.service.uploads import check_template
from infra.pool.service.view import core_task, task_view

MAX_WAIT = 30.0
MAX_RESULTS = 200
ORDER_SECONDS = 30.0


class Regroup(wire.Said):
    """Body of POST /groups/force-regroup."""

    configuration_name: wire.ShortText


class Ban(wire.Said):
    """Body of POST /nodes/{id}/ban and /eject."""

    reason: str = "by the operator"
    evidence: wire.JsonObject = Field(default_factory=dict)


class LedgerReport(wire.Said):
    """Body of POST /ledger."""

    record: Record


def admin_routes(pool: Pool, gate: Gate, admission: Admission) -> APIRouter:
    """What the operator, a flow or a validator asks for."""
    router = APIRouter(dependencies=[Depends(gate.admin)], tags=["admin"])

    @router.get("/tasks")
    async def tasks() -> dict[str, Any]:
        """All tasks, the newest first."""
        views = [task_view(pool, task_id) for task_id in pool.tasks]
        views.sort(key=lambda view: view.created_at, reverse=True)
        return {"success": True, "tasks": views}

    @router.post("/tasks")
    async def create(body: wire.TaskRequest) -> wire.TaskAnswer:
        """A new task; the same one again is the one that is there."""
        for known in pool.tasks.values():
            if known.name == body.name and wire.TaskRequest(**_request(known)) == body:
                return wire.TaskAnswer(task=task_view(pool, known.id))
        check_template(body.storage_config.file_name_template if body.storage_config else None)
        task = wire.TaskView(
            **dict(body), id=str(uuid.uuid4()), created_at=time.time_ns() // 1_000_000
        )
        pool.decide(TaskCreated(core_task(task, pool)))
        pool.tasks[task.id] = task
        pool.journal.touch("spec", task.id)
        await pool.journal.settled()
        return wire.TaskAnswer(task=task)

    @router.delete("/tasks/all")
    async def delete_all() -> wire.Done:
        """Delete all tasks."""
        for task_id in list(pool.tasks):
            _delete(pool, task_id)
        await pool.journal.settled()
        return wire.Done()

    @router.delete("/tasks/{task_id}")
    async def delete(task_id: str) -> wire.Done:
        """Delete a task with its shards, results and groups."""
        _need(pool.tasks, task_id, "task")
        _delete(pool, task_id)
        await pool.journal.settled()
        return wire.Done()

    @router.post("/tasks/{task_id}/shards")
    async def add_shards(task_id: str, body: wire.ShardsRequest) -> wire.Done:
        """More work of a task."""
        task = _need(pool.tasks, task_id, "task")
        if not task.sharded:
            raise Conflict(f"task {task.name!r} has no shards; create it with sharded = true")
        for shard in body.shards:
            known = pool.state.shards.get(shard.shard_id)
            if known is not None and known.task_id != task_id:
                raise Conflict(f"shard {shard.shard_id!r} is one of another task")
        for shard in body.shards:
            if shard.shard_id in pool.state.shards:
                continue
            pool.journal.batch.payloads.append(
                {
                    "shard_id": shard.shard_id,
                    "task_id": task_id,
                    "text": json.dumps(shard.payload, allow_nan=False),
                }
            )
            pool.decide(ShardsAdded(task_id, (shard.shard_id,), shard.kind, shard.priority))
        await pool.journal.settled()
        return wire.Done()

    @router.get("/tasks/{task_id}/results")
    async def results(
        task_id: str,
        after: int = 0,
        wait_seconds: Annotated[float, Query(ge=0, le=MAX_WAIT)] = 0.0,
    ) -> wire.Results:
        """What became of shards since result `after`; waits for something new."""
        pool.heard[task_id] = time.monotonic()
        deadline = time.monotonic() + wait_seconds
        with pool.watch(f"task:{task_id}") as watch:
            while True:
                _need(pool.tasks, task_id, "task")
                await pool.journal.settled()
                found = await pool.store.results(task_id, after, MAX_RESULTS)
                left = deadline - time.monotonic()
                if found or left <= 0:
                    rows = [wire.ResultRow.model_validate_json(text) for text in found]
                    return wire.Results(results=rows)
                await watch.wait(left)

    @router.post("/shards/{shard_id}/drop")
    async def drop(shard_id: str) -> wire.Done:
        """Nobody waits for the shard any more."""
        _need(pool.state.shards, shard_id, "shard")
        pool.decide(Dropped(shard_id))
        await pool.journal.settled()
        return wire.Done()

    @router.post("/shards/{shard_id}/verdict")
    async def verdict(shard_id: str, body: wire.Verdict) -> wire.Done:
        """What was found about a result."""
        shard = _need(pool.state.shards, shard_id, "shard")
        if body.group_id not in shard.submitted_by:
            raise Conflict(
                f"shard {shard_id!r} has no result of group {body.group_id!r} that waits for a "
                "verdict"
            )
        await judge(pool, shard_id, body)
        return wire.Done()

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
    async def ban(node_id: str, body: Ban | None = None) -> wire.Done:
        """Exclude a node for good."""
        said = body or Ban()
        _need(pool.state.nodes, node_id, "node")
        pool.decide(Excluded(node_id, True, said.reason))
        pool.record(Slash(node_id=node_id, reason=said.reason, evidence=said.evidence))
        await pool.journal.settled()
        return wire.Done()

    @router.post("/nodes/{node_id}/eject")
    async def eject(node_id: str, body: Ban | None = None) -> wire.Done:
        """Exclude a node."""
        _need(pool.state.nodes, node_id, "node")
        pool.decide(Excluded(node_id, False, (body or Ban()).reason))
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
        _need(pool.state.nodes, node_id, "node")
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
        _need(pool.state.groups, group_id, "group")
        pool.decide(Disbanded(group_id, "by the operator"))
        await pool.journal.settled()
        return wire.Done()

    @router.get("/groups/{group_id}/logs")
    async def group_logs(group_id: str) -> dict[str, Any]:
        """The last words of each member's task."""
        members = list(_need(pool.state.groups, group_id, "group").members)
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


async def judge(pool: Pool, shard_id: str, verdict: wire.Verdict) -> None:
    """Take a verdict into account, and into the ledger."""
    shard = pool.state.shards[shard_id]
    submitted = [
        row
        for row in map(
            wire.ResultRow.model_validate_json, await pool.store.results_of_shard(shard_id)
        )
        if row.state == "submitted" and row.group_id == verdict.group_id
    ]
    nodes = tuple(submitted[-1].node_ids) if submitted else ()
    if verdict.group_id not in shard.submitted_by:
        raise Conflict("another verdict was faster")
    pool.decide(
        Judged(
            shard_id,
            verdict.group_id,
            verdict.accepted,
            verdict.hard,
            tuple(verdict.guilty),
            verdict.reason,
            verdict.final,
        )
    )
    pool.record(
        Verdict(
            task_id=shard.task_id,
            shard_id=shard_id,
            nodes=nodes,
            group_id=verdict.group_id,
            accepted=verdict.accepted,
            reason=verdict.reason,
        )
    )
    if not verdict.accepted:
        kind: Literal["hard_invalidation", "soft_invalidation"] = (
            "hard_invalidation" if verdict.hard else "soft_invalidation"
        )
        pool.record(
            Invalidation(
                kind=kind,
                task_id=shard.task_id,
                shard_id=shard_id,
                nodes=tuple(verdict.guilty) or nodes,
                reason=verdict.reason,
                evidence=verdict.evidence,
            )
        )
        for node_id in verdict.guilty if verdict.hard else ():
            pool.record(Slash(node_id=node_id, reason=verdict.reason, evidence=verdict.evidence))
    await pool.journal.settled()


def _need(table: dict[str, Any], key: str, what: str) -> Any:
    if key not in table:
        raise NotThere(f"there is no {what} {key[:80]!r}")
    return table[key]


def _request(task: wire.TaskView) -> dict[str, Any]:
    return {name: getattr(task, name) for name in wire.TaskRequest.model_fields}


def delete_abandoned(pool: Pool) -> None:
    """Delete tasks whose owners are not heard of any more."""
    now = time.monotonic()
    for task_id, task in list(pool.tasks.items()):
        if 0 < task.owner_seconds < now - pool.heard.setdefault(task_id, now):
            _delete(pool, task_id)


def _delete(pool: Pool, task_id: str) -> None:
    pool.decide(TaskDeleted(task_id))
    del pool.tasks[task_id]
    for key in [key for key in pool.upload_requests if key[0] == task_id]:
        del pool.upload_requests[key]
    pool.journal.touch("spec", task_id)
    pool.journal.batch.dropped_tasks.append(task_id)
    pool.heard.pop(task_id, None)
    pool.wake([f"task:{task_id}"])


async def _order(pool: Pool, node_id: str, kind: Literal["restart", "logs"]) -> str:
    """Give a node an order and wait for its answer."""
    node = _need(pool.state.nodes, node_id, "node")
    if node.state is not NodeState.HEALTHY:
        raise Conflict(f"the node is {node.state}; it is not there to answer")
    order = wire.Order(order_id=uuid.uuid4().hex, kind=kind)
    pool.orders.setdefault(node_id, []).append(order)
    pool.wake([node_id])
    deadline = time.monotonic() + ORDER_SECONDS
    with pool.watch(f"order:{order.order_id}") as watch:
        while order.order_id not in pool.order_answers:
            left = deadline - time.monotonic()
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
