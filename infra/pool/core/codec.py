"""The state as rows of JSON text, one per entity, and back.

Indices are not stored: they follow from the entities. What was silent while the state was not in
memory is not held against a node: after loading, everybody starts with a fresh heartbeat.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from infra.pool.core import life
from infra.pool.core.state import (
    Group,
    Node,
    NodeState,
    PoolState,
    Settings,
    Shard,
    ShardState,
    Task,
)

_TYPES: dict[str, TypeAdapter[Any]] = {
    "node": TypeAdapter(Node),
    "group": TypeAdapter(Group),
    "task": TypeAdapter(Task),
    "shard": TypeAdapter(Shard),
}
_TABLES = {"node": "nodes", "group": "groups", "task": "tasks", "shard": "shards"}
NEXT_GROUP = ("pool", "next_group")


def dump(state: PoolState, kind: str, key: str) -> str | None:
    """JSON of an entity; None if it is no more."""
    if (kind, key) == NEXT_GROUP:
        return str(state.next_group)
    entity = getattr(state, _TABLES[kind]).get(key)
    return None if entity is None else _TYPES[kind].dump_json(entity).decode()


def dump_all(state: PoolState) -> Iterable[tuple[str, str, str]]:
    """(kind, key, JSON) of everything."""
    for kind, table in _TABLES.items():
        for key in getattr(state, table):
            text = dump(state, kind, key)
            if text is not None:
                yield kind, key, text
    yield (*NEXT_GROUP, str(state.next_group))


def load(rows: Iterable[tuple[str, str, str]], settings: Settings, now: float) -> PoolState:
    """The state of stored rows at the time `now`."""
    state = PoolState(settings=settings, now=now)
    for kind, key, text in rows:
        if (kind, key) == NEXT_GROUP:
            state.next_group = int(text)
        else:
            getattr(state, _TABLES[kind])[key] = _TYPES[kind].validate_json(text)
    for node in state.nodes.values():
        node.last_seen = now
        life.refresh_idle(state, node)
        wait = {
            NodeState.DISCOVERED: settings.challenge_seconds,
            NodeState.HEALTHY: settings.unhealthy_after,
            NodeState.DEAD: settings.forget_after,
        }.get(node.state, settings.dead_after)
        state.look_at(node, now + wait)
    for group in state.groups.values():
        if group.stalled_at is not None:
            state.stalled[group.group_id] = None
        elif group.ready_at is not None and not group.shard_id:
            state.free[group.group_id] = None
    for shard in state.shards.values():
        for lease in shard.leases:
            lease.renewed_at = lease.progress_at = now
    _fill_queues(state)
    return state


def _fill_queues(state: PoolState) -> None:
    """Queued shards that no queue names are put at its front: a queue is stored with its task."""
    named = {shard_id for task in state.tasks.values() for shard_id in task.queue}
    for shard in state.shards.values():
        if shard.state is ShardState.QUEUED and shard.shard_id not in named:
            state.tasks[shard.task_id].queue.appendleft(shard.shard_id)
