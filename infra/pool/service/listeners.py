"""Transitions of nodes, groups and tasks, told to webhooks and to Prefect; never heartbeats.

Payloads of webhooks are the original's: `{"event", "data", "timestamp"}` with
`node.status_changed`, `group.created`, `group.destroyed`; `group.member_replaced` and
`task.stopped` are ours. Prefect gets the same as events `nodepool.<event>` of the resource
`nodepool.<kind>.<id>` through the API of PREFECT_API_URL. Invariants: the pool never waits for a
listener; one that does not answer is tried `TRIES` times and then loses that transition, and only
that; a queue that is full loses the newest. No token is logged.
"""

import asyncio
import logging
import os
import uuid
from datetime import UTC, datetime
from typing import Any

import httpx

from infra.pool.core.events import (
    GroupCreated,
    GroupDestroyed,
    GroupReady,
    MemberReplaced,
    NodeChanged,
    TaskCreated,
    TaskDeleted,
    TaskStopped,
)
from infra.pool.service.settings import Webhook

logger = logging.getLogger(__name__)

TRIES = 6
_TIMEOUT = 30.0
_MAX_QUEUE = 10_000

Transition = (
    NodeChanged
    | GroupCreated
    | GroupReady
    | GroupDestroyed
    | MemberReplaced
    | TaskCreated
    | TaskStopped
    | TaskDeleted
)


class Listeners:
    """All who are told."""

    def __init__(self, webhooks: list[Webhook]) -> None:
        self._webhooks = webhooks
        self._prefect = os.environ.get("PREFECT_API_URL", "")
        self._queues: list[asyncio.Queue[tuple[str, str, dict[str, Any], datetime]]] = [
            asyncio.Queue(_MAX_QUEUE) for _ in range(len(webhooks) + bool(self._prefect))
        ]

    def tell(self, effect: Transition, ip_address: str, port: int) -> None:
        """Queue a transition; address and port are those of a node that changed."""
        name, subject, data = _payload(effect, ip_address, port)
        for queue in self._queues:
            try:
                queue.put_nowait((name, subject, data, datetime.now(UTC)))
            except asyncio.QueueFull:
                logger.warning("a listener is behind; it does not learn of %s %s", name, subject)

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with httpx.AsyncClient(timeout=_TIMEOUT) as client, asyncio.TaskGroup() as tasks:
            for number, queue in enumerate(self._queues):
                tasks.create_task(self._deliver(client, number, queue))

    async def _deliver(
        self,
        client: httpx.AsyncClient,
        number: int,
        queue: asyncio.Queue[tuple[str, str, dict[str, Any], datetime]],
    ) -> None:
        while True:
            name, subject, data, at = await queue.get()
            headers: dict[str, str] = {}
            auth: tuple[str, str] | None = None
            body: Any
            if number < len(self._webhooks):
                hook = self._webhooks[number]
                url = hook.url
                if hook.bearer_token:
                    headers["authorization"] = f"Bearer {hook.bearer_token.get_secret_value()}"
                body = {"event": name, "data": data, "timestamp": int(at.timestamp())}
            else:
                url, body = f"{self._prefect.rstrip('/')}/events", [_event(name, subject, data, at)]
                key = os.environ.get("PREFECT_API_KEY")
                if key:
                    headers["authorization"] = f"Bearer {key}"
                user, colon, password = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
                auth = (user, password) if colon else None
            await _post(client, url, body, headers, auth)


async def _post(
    client: httpx.AsyncClient,
    url: str,
    body: Any,
    headers: dict[str, str],
    auth: tuple[str, str] | None,
) -> None:
    failure = ""
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(min(0.5 * 2 ** (attempt - 1), 10.0))
        try:
            answer = await client.post(
                url, json=body, headers=headers, auth=auth or httpx.USE_CLIENT_DEFAULT
            )
        except httpx.HTTPError as error:
            failure = type(error).__name__
            continue
        if answer.is_success:
            return
        failure = f"HTTP {answer.status_code}"
        if answer.status_code < 500 and answer.status_code not in (408, 429):
            break
    logger.warning("listener %s: %s; a transition is lost to it", httpx.URL(url).host, failure)


def _event(name: str, subject: str, data: dict[str, Any], at: datetime) -> dict[str, Any]:
    kind = name.partition(".")[0]
    return {
        "id": str(uuid.uuid4()),
        "occurred": at.isoformat(),
        "event": f"nodepool.{name}",
        "resource": {
            "prefect.resource.id": f"nodepool.{kind}.{subject}",
            "prefect.resource.name": subject,
        },
        "related": [],
        "payload": data,
    }


def _payload(effect: Transition, ip_address: str, port: int) -> tuple[str, str, dict[str, Any]]:
    match effect:
        case NodeChanged():
            data: dict[str, Any] = {
                "node_address": effect.node_id,
                "ip_address": ip_address,
                "port": port,
                "old_status": effect.old,
                "new_status": effect.new,
                "reason": effect.reason,
            }
            return "node.status_changed", effect.node_id, data
        case GroupCreated():
            return "group.created", effect.group_id, _group(effect, effect.topology)
        case GroupReady():
            return "group.ready", effect.group_id, {"group_id": effect.group_id}
        case GroupDestroyed():
            data = _group(effect, effect.topology) | {"reason": effect.reason}
            return "group.destroyed", effect.group_id, data
        case MemberReplaced():
            data = {
                "group_id": effect.group_id,
                "index": effect.rank,
                "lost": effect.lost,
                "spare": effect.spare,
            }
            return "group.member_replaced", effect.group_id, data
        case TaskStopped():
            data = {"task_id": effect.task_id, "reason": effect.reason}
            return "task.stopped", effect.task_id, data
        case TaskCreated():
            task = effect.task
            data = {"task_id": task.task_id, "name": task.name, "priority": task.priority}
            return "task.created", task.task_id, data
        case TaskDeleted():
            return "task.deleted", effect.task_id, {"task_id": effect.task_id}


def _group(effect: GroupCreated | GroupDestroyed, topology: str) -> dict[str, Any]:
    return {
        "group_id": effect.group_id,
        "configuration_name": topology,
        "task_id": effect.task_id,
        "nodes": list(effect.members),
    }
