"""Routes of tasks, their shards and results; each needs the admin key."""

import json
import time
import uuid
from itertools import groupby
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query

from infra.pool import wire
from infra.pool.core.events import Dropped, Judged, ShardsAdded, TaskCreated, TaskDeleted
from infra.pool.ledger import Invalidation, Slash, Verdict
from infra.pool.service.errors import Conflict, NotThere
from infra.pool.service.gate import Gate
from infra.pool.service.pool import Pool
from infra.pool.service.uploads import check_template
from infra.pool.service.view import core_task, task_view

MAX_WAIT = 30.0
MAX_RESULTS = 200


def task_routes(pool: Pool, gate: Gate) -> APIRouter:
    """What an owner of work, a flow or a validator asks for."""
    router = APIRouter(dependencies=[Depends(gate.admin)], tags=["tasks"])

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
        need(pool.tasks, task_id, "task")
        _delete(pool, task_id)
        await pool.journal.settled()
        return wire.Done()

    @router.post("/tasks/{task_id}/shards")
    async def add_shards(task_id: str, body: wire.ShardsRequest) -> wire.Done:
        """More work of a task."""
        task = need(pool.tasks, task_id, "task")
        if not task.sharded:
            raise Conflict(f"task {task.name!r} has no shards; create it with sharded = true")
        for shard in body.shards:
            known = pool.state.shards.get(shard.shard_id)
            if known is not None and known.task_id != task_id:
                raise Conflict(f"shard {shard.shard_id!r} is one of another task")
        new = {s.shard_id: s for s in body.shards if s.shard_id not in pool.state.shards}
        pool.journal.batch.payloads += [
            {"shard_id": s.shard_id, "task_id": task_id, "text": json.dumps(s.payload)}
            for s in new.values()
        ]
        # Those of one kind together: groups are formed once for them.
        for (kind, priority), alike in groupby(new.values(), lambda s: (s.kind, s.priority)):
            ids = tuple(shard.shard_id for shard in alike)
            pool.decide(ShardsAdded(task_id, ids, kind, priority))
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
                need(pool.tasks, task_id, "task")
                await pool.journal.settled()
                found = await pool.store.results(task_id, after, MAX_RESULTS)
                left = pool.left(deadline)
                if found or left <= 0:
                    rows = [wire.ResultRow.model_validate_json(text) for text in found]
                    return wire.Results(results=rows)
                await watch.wait(left)

    @router.post("/shards/{shard_id}/drop")
    async def drop(shard_id: str) -> wire.Done:
        """Nobody waits for the shard any more."""
        need(pool.state.shards, shard_id, "shard")
        pool.decide(Dropped(shard_id))
        await pool.journal.settled()
        return wire.Done()

    @router.post("/shards/{shard_id}/verdict")
    async def verdict(shard_id: str, body: wire.Verdict) -> wire.Done:
        """What was found about a result."""
        shard = need(pool.state.shards, shard_id, "shard")
        if body.group_id not in shard.submitted_by:
            raise Conflict(
                f"shard {shard_id!r} has no result of group {body.group_id!r} that waits for a "
                "verdict"
            )
        await judge(pool, shard_id, body)
        return wire.Done()

    return router


async def judge(pool: Pool, shard_id: str, verdict: wire.Verdict) -> None:
    """Take a verdict into account, and into the ledger; Conflict where it is too late."""
    submitted = [
        row
        for row in map(
            wire.ResultRow.model_validate_json, await pool.store.results_of_shard(shard_id)
        )
        if row.state == "submitted" and row.group_id == verdict.group_id
    ]
    nodes = tuple(submitted[-1].node_ids) if submitted else ()
    shard = pool.state.shards.get(shard_id)
    if shard is None or verdict.group_id not in shard.submitted_by:
        raise Conflict("another verdict was faster, or the task was deleted")
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
    if not verdict.accepted and (verdict.guilty or verdict.hard):
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


def need(table: dict[str, Any], key: str, what: str) -> Any:
    """What a table has under a key; NotThere where it has nothing."""
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
    pool.journal.batch.drop_task(task_id)
    pool.heard.pop(task_id, None)
    pool.wake([f"task:{task_id}"])
