"""`decide(state, event, now) -> (state, effects)`: the whole behaviour of the pool.

Pure: no I/O, no clock, no randomness; the same state, event and time give the same result. The
state is changed in place and handed back. Time never runs backwards here, and a gap in it (the
service slept or was down) is held against nobody.
"""

from infra.pool.core import formation, groups, leases, life, merging, sharing
from infra.pool.core.errors import BadTask
from infra.pool.core.events import (
    Beat,
    Beats,
    CanaryGiven,
    Disbanded,
    Dropped,
    Effect,
    Effects,
    Event,
    Excluded,
    Failed,
    Gone,
    Judged,
    Leaving,
    Proved,
    Registered,
    ShardsAdded,
    Submitted,
    TaskCreated,
    TaskDeleted,
    Tick,
)
from infra.pool.core.state import PoolState, Shard

_GAP = 15.0
"""Seconds between ticks that are taken for a gap in our own time."""
_SWEEP = 5.0
"""Seconds between looks at all groups; what cannot wait is looked at with each tick."""


def decide(state: PoolState, event: Event, now: float) -> tuple[PoolState, list[Effect]]:
    """Take one event into account; returns the state and what has to be done."""
    state.now = max(state.now, now)
    effects = Effects()
    match event:
        case Beats():
            for node_id in event.node_ids:
                node = state.nodes.get(node_id)
                if node is not None and node.state not in life.OUT:
                    life.seen(state, node, effects)
        case Beat():
            life.beat(state, event, effects)
            if effects.items:
                leases.grant(state, effects)
        case Tick():
            _tick(state, effects)
        case Registered():
            life.registered(state, event, effects)
        case Proved():
            life.proved(state, event, effects)
        case CanaryGiven():
            life.tried(state, event)
        case Submitted():
            leases.submitted(state, event, effects)
            leases.grant(state, effects)
        case Failed():
            leases.failed(state, event, effects)
            leases.grant(state, effects)
        case Judged():
            leases.judged(state, event, effects)
            leases.grant(state, effects)
        case Dropped():
            leases.dropped(state, event.shard_id, effects)
        case Leaving() | Gone() | Excluded():
            _departs(state, event, effects)
            leases.grant(state, effects)
        case Disbanded():
            if event.group_id in state.groups:
                groups.dissolve(state, state.groups[event.group_id], event.reason, effects)
        case TaskCreated() | TaskDeleted() | ShardsAdded():
            _tasks(state, event, effects)
    return state, effects.items


def _tick(state: PoolState, effects: Effects) -> None:
    if state.last_tick is not None and state.now - state.last_tick > _GAP:
        state.grace_until = state.now + state.settings.unhealthy_after
    state.last_tick = state.now
    life.silence(state, effects)
    if state.now - state.last_sweep >= _SWEEP:
        state.last_sweep = state.now
        leases.expire(state, effects)
        groups.retire(state, effects)
        sharing.share(state, effects)
        merging.merge(state, effects)
    groups.mend(state, effects)
    formation.form(state, effects)
    leases.grant(state, effects)


def _departs(state: PoolState, event: Leaving | Gone | Excluded, effects: Effects) -> None:
    node = state.nodes.get(event.node_id)
    if node is None:
        return
    if isinstance(event, Leaving):
        node.leaving = True
        if node.group_id:
            group = state.groups[node.group_id]
            group.give_way = group.give_way or groups.LEAVING
            state.touch("group", group.group_id)
            if not group.shard_id:
                groups.give_way(state, group, effects)
        state.touch("node", node.node_id)
        life.refresh_idle(state, node)
    elif isinstance(event, Gone):
        life.gone(state, node, "its process ended", effects)
    else:
        life.exclude(state, node, event.ban, event.reason, effects)


def _tasks(
    state: PoolState, event: TaskCreated | TaskDeleted | ShardsAdded, effects: Effects
) -> None:
    if isinstance(event, TaskCreated):
        task = event.task
        same = [other for other in state.tasks.values() if other.name == task.name]
        if same or task.task_id in state.tasks:
            raise BadTask(f"a task with the name {task.name!r} exists already; choose another")
        if not task.weight > 0:
            raise BadTask(f"task {task.name!r}: weight {task.weight}; it must be above 0")
        state.tasks[task.task_id] = task
        state.touch("task", task.task_id)
        return
    found = state.tasks.get(event.task_id)
    if found is None:
        return
    if isinstance(event, TaskDeleted):
        for group in [g for g in state.groups.values() if g.task_id == event.task_id]:
            groups.dissolve(state, group, "the task was deleted", effects)
        for shard_id in [s.shard_id for s in state.shards.values() if s.task_id == event.task_id]:
            del state.shards[shard_id]
            state.touch("shard", shard_id)
        del state.tasks[event.task_id]
    else:
        for shard_id in event.shard_ids:
            if shard_id not in state.shards:
                shard = Shard(shard_id, event.task_id, event.kind, event.priority, found.added)
                found.added += 1
                state.shards[shard_id] = shard
                state.touch("shard", shard_id)
                leases.enqueue(state, found, shard)
                found.open_shards += 1
        # Not with the next tick: the first shards of a task should not wait for it.
        if found.open_shards > found.groups and state.idle:
            formation.form(state, effects)
        leases.grant(state, effects)
    state.touch("task", event.task_id)
