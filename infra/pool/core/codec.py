"""The state as rows of JSON text, one per entity, and back.

Indices, queues and counts are not stored: they follow from the entities, so that a row is small and
changes only with what it is about. What was silent while the state was not in memory is not held
against a node: after loading, everybody starts with a fresh heartbeat.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from infra.pool.core import life
from infra.pool.core.state import (
    OPEN,
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
_DERIVED = {"task": {"queue", "open_shards", "groups", "grouped", "held"}}
NEXT_GROUP = ("pool", "next_group")


def dump(state: PoolState, kind: str, key: str) -> str | None:
    """JSON of an entity; None if it is no more."""
    if (kind, key) == NEXT_GROUP:
        return str(state.next_group)
    entity = getattr(state, _TABLES[kind]).get(key)
    if entity is None:
        return None
    return _TYPES[kind].dump_json(entity, exclude=_DERIVED.get(kind)).decode()


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
        node.last_seen, node.due = now, 0.0
        life.refresh_idle(state, node)
        wait = {
            NodeState.DISCOVERED: settings.challenge_seconds,
            NodeState.HEALTHY: settings.unhealthy_after,
            NodeState.DEAD: settings.forget_after,
        }.get(node.state, settings.dead_after)
        state.look_at(node, now + wait)
    for group in state.groups.values():
        state.count(group, 1)
        if group.stalled_at is not None:
            state.stalled[group.group_id] = None
        elif group.ready_at is not None and not group.shard_id:
            state.free[group.group_id] = now
    for shard in state.shards.values():
        for lease in shard.leases:
            lease.renewed_at = lease.progress_at = now
    _fill_queues(state)
    return state


def _fill_queues(state: PoolState) -> None:
    """Shards that came back from a group wait in front, then by priority, each as they came in."""
    for shard in sorted(state.shards.values(), key=lambda s: (s.losses == 0, s.priority, s.number)):
        task = state.tasks[shard.task_id]
        task.open_shards += shard.state in OPEN
        if shard.state is ShardState.QUEUED:
            task.queue.append(shard.shard_id)
