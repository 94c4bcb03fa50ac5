"""Shards in the hands of groups: granted, renewed, taken back, submitted, judged.

A shard goes back to its queue the moment its group is in doubt, at the front, so that another group
takes it next; the group in doubt keeps a suspended lease and goes on with it if it returns before
somebody else got as far. Near the end of a task idle groups take a second lease on what is still
out (MapReduce, Dean and Ghemawat 2004, section 3.6). The first accepted result stands.
"""

from itertools import takewhile

from infra.pool.core import life, losses
from infra.pool.core.events import (
    Effects,
    Failed,
    Judged,
    Leased,
    Requeued,
    Revoked,
    ShardEnded,
    Submitted,
    TaskStopped,
    VerdictWanted,
)
from infra.pool.core.state import OPEN, Group, Lease, PoolState, Shard, ShardState, Task

_AVERAGE = 0.2
"""Weight of the newest shard in a task's usual time."""


def grant(state: PoolState, effects: Effects) -> None:
    """Give each free group the next shard of its task; those that get none may take a second lease.

    A group that is to give way gets nothing.
    """
    left: dict[str, list[Group]] = {}
    for group_id in list(state.free):
        group = state.groups[group_id]
        if group.give_way:
            continue
        shard = _next_queued(state, state.tasks[group.task_id], group)
        if shard is not None:
            _lease(state, group, shard, effects)
        else:
            left.setdefault(group.task_id, []).append(group)
    for task_id, waiting in left.items():
        for group, shard in zip(waiting, _late(state, state.tasks[task_id]), strict=False):
            _lease(state, group, shard, effects)


def _lease(state: PoolState, group: Group, shard: Shard, effects: Effects) -> None:
    hedge = any(not lease.suspended for lease in shard.leases)
    shard.leases.append(Lease(group.group_id, state.now, state.now, progress_at=state.now))
    shard.state = ShardState.LEASED
    group.shard_id = shard.shard_id
    del state.free[group.group_id]
    state.touch("shard", shard.shard_id)
    state.touch("group", group.group_id)
    effects.add(Leased(shard.shard_id, group.group_id, hedge))


def enqueue(state: PoolState, task: Task, shard: Shard) -> None:
    """A new shard goes behind those with its priority or a lower number."""

    def before(other_id: str) -> bool:
        other = state.shards.get(other_id)
        return other is None or other.priority <= shard.priority

    if not task.queue or before(task.queue[-1]):
        task.queue.append(shard.shard_id)
    else:
        ahead = sum(1 for _ in takewhile(before, task.queue))
        task.queue.insert(ahead, shard.shard_id)


def dropped(state: PoolState, shard_id: str, effects: Effects) -> None:
    """Nobody waits for a shard: it ends unless a group has it."""
    shard = state.shards.get(shard_id)
    if shard is not None and shard.state is ShardState.QUEUED and not shard.leases:
        end(state, shard, ShardState.FAILED, "nobody wants it any more", effects)


def _next_queued(state: PoolState, task: Task, group: Group) -> Shard | None:
    """The first shard of a task's queue that suits; entries of shards that are not queued any more
    go. One that the group's nodes have lost, or say that it fails, waits for another group, where
    there is one."""
    found, passed = None, []
    while task.queue and found is None:
        shard = state.shards.get(task.queue.popleft())
        if shard is None or shard.state is not ShardState.QUEUED:
            continue
        known = {*shard.lost_by, *shard.user_failures}
        if len(known) < task.groups and not known.isdisjoint(group.members):
            passed.append(shard.shard_id)
        else:
            found = shard
    task.queue.extendleft(reversed(passed))
    return found


def _late(state: PoolState, task: Task) -> list[Shard]:
    """Shards with one lease that is likely to end later than a new one would, the latest first."""
    if not task.shard_seconds:
        return []
    found: list[tuple[float, str]] = []
    for group in state.groups.values():
        shard = state.shards.get(group.shard_id) if group.task_id == task.task_id else None
        if shard is None or shard.state is not ShardState.LEASED:
            continue
        if len(shard.leases) != 1 or shard.submitted_by:
            continue
        usual = task.shard_seconds.get(shard.kind)
        if usual is None:
            continue
        lease = shard.leases[0]
        spent = state.now - lease.granted_at
        # Progress gives a forecast; without it, what has taken longer than usual counts as late.
        rest = spent / lease.progress - spent if lease.progress > 0 else spent
        if rest > usual * (1 + state.settings.hedge_share):
            found.append((-rest, shard.shard_id))
    return [state.shards[shard_id] for _, shard_id in sorted(found)]


def lease_of(shard: Shard, group_id: str) -> Lease | None:
    """The group's lease on a shard."""
    return next((lease for lease in shard.leases if lease.group_id == group_id), None)


def suspend(state: PoolState, group: Group, effects: Effects) -> None:
    """A member is silent: others may take the shard, the group may still come back with it."""
    shard = state.shards.get(group.shard_id)
    lease = lease_of(shard, group.group_id) if shard else None
    if shard is None or lease is None or lease.suspended:
        return
    lease.suspended = True
    _settle(state, shard, f"group {group.group_id} is silent", effects)


def resume(state: PoolState, group: Group, effects: Effects) -> None:
    """All members are back: whoever is further with the shard keeps it."""
    shard = state.shards.get(group.shard_id)
    lease = lease_of(shard, group.group_id) if shard else None
    if shard is None or lease is None:
        return
    lease.suspended = False
    lease.renewed_at = lease.progress_at = state.now
    for other in [item for item in shard.leases if item is not lease]:
        if other.progress <= lease.progress:
            drop(state, state.groups[other.group_id], "the first group is back", effects)
    _settle(state, shard, "the group is back", effects)


def drop(state: PoolState, group: Group, reason: str, effects: Effects) -> None:
    """Take a group's lease back; the shard waits again unless another group has it."""
    shard = state.shards.get(group.shard_id)
    group.shard_id = ""
    state.touch("group", group.group_id)
    if group.ready_at is not None and group.stalled_at is None:
        state.free[group.group_id] = state.now
    lease = lease_of(shard, group.group_id) if shard else None
    if shard is None or lease is None:
        return
    shard.leases.remove(lease)
    effects.add(Revoked(shard.shard_id, group.group_id, reason))
    _settle(state, shard, reason, effects)


def _settle(state: PoolState, shard: Shard, reason: str, effects: Effects) -> None:
    """Set the shard's state after a lease or submission changed; queue it when it must be."""
    state.touch("shard", shard.shard_id)
    if shard.state not in OPEN:
        return
    queue = state.tasks[shard.task_id].queue
    active = any(not lease.suspended for lease in shard.leases)
    if active or shard.submitted_by:
        if shard.state is ShardState.QUEUED:
            queue.remove(shard.shard_id)
        shard.state = ShardState.LEASED if active else ShardState.SUBMITTED
    elif shard.state is not ShardState.QUEUED:
        shard.state = ShardState.QUEUED
        shard.losses += 1
        queue.appendleft(shard.shard_id)
        effects.add(Requeued(shard.shard_id, reason))


def expire(state: PoolState, effects: Effects) -> None:
    """Take back leases that nobody renews or that make no progress."""
    settings = state.settings
    if state.now < state.grace_until:
        return
    for group in list(state.groups.values()):
        shard = state.shards.get(group.shard_id)
        lease = lease_of(shard, group.group_id) if shard else None
        if shard is None or lease is None or lease.suspended:
            continue
        if state.now - lease.renewed_at > settings.lease_seconds:
            reason = "the lease was not renewed"
        elif state.now - lease.progress_at > settings.stuck_seconds:
            reason = f"no progress for {settings.stuck_seconds:g} s"
        else:
            continue
        drop(state, group, reason, effects)
        losses.lost(state, shard, group.members[0], reason, effects, strike=False)


def submitted(state: PoolState, event: Submitted, effects: Effects) -> None:
    """A result has arrived; it counts when it is judged."""
    group, shard = state.groups.get(event.group_id), state.shards.get(event.shard_id)
    lease = lease_of(shard, event.group_id) if shard else None
    if group is None or shard is None or lease is None:
        return
    task = state.tasks[shard.task_id]
    seconds = state.now - lease.granted_at
    usual = task.shard_seconds.get(shard.kind, seconds)
    task.shard_seconds[shard.kind] = usual + _AVERAGE * (seconds - usual)
    spent = seconds * len(group.members)
    usual = task.shard_cost.get(group.topology, spent)
    task.shard_cost[group.topology] = usual + _AVERAGE * (spent - usual)
    task.served += spent
    task.leases_ended += 1
    shard.leases.remove(lease)
    shard.submitted_by.append(group.group_id)
    group.shard_id = ""
    if group.ready_at is not None and group.stalled_at is None:
        state.free[group.group_id] = state.now
    _settle(state, shard, "submitted", effects)
    state.touch("group", group.group_id)
    state.touch("task", task.task_id)
    effects.add(VerdictWanted(shard.shard_id, event.group_id))


def judged(state: PoolState, event: Judged, effects: Effects) -> None:
    """A verdict: accept once, or give the shard out again and count the guilty."""
    shard = state.shards.get(event.shard_id)
    if shard is None or event.group_id not in shard.submitted_by:
        return
    shard.submitted_by.remove(event.group_id)
    if event.accepted and shard.state in OPEN:
        shard.accepted_by = event.group_id
        if event.group_id in state.groups:
            for node in state.members(state.groups[event.group_id]):
                node.strikes = 0
        end(state, shard, ShardState.DONE, "", effects)
    elif event.final and shard.state in OPEN:
        end(state, shard, ShardState.FAILED, event.reason, effects)
    else:
        _settle(state, shard, event.reason or "rejected", effects)
    if not event.accepted:
        for node_id in event.guilty:
            life.blame(state, node_id, event.hard, event.reason, effects)


def failed(state: PoolState, event: Failed, effects: Effects) -> None:
    """A group could not do a shard: the work's fault, the machine's, or the task's config."""
    group, shard = state.groups.get(event.group_id), state.shards.get(event.shard_id)
    if group is None or shard is None or lease_of(shard, event.group_id) is None:
        return
    task = state.tasks[shard.task_id]
    drop(state, group, f"{event.cause}: {event.reason}"[:500], effects)
    if event.cause == "user":
        shard.user_failures.append(event.node_id)
        # One node's word does not end a shard while others could try it.
        needed = min(state.settings.user_retries, max(task.groups, 1))
        enough = len(shard.user_failures) >= state.settings.user_retries
        if enough and len(set(shard.user_failures)) >= needed:
            end(state, shard, ShardState.FAILED, f"user: {event.reason}"[:500], effects)
    elif event.cause == "config" and not task.stopped:
        life.blame(state, event.node_id, False, f"config: {event.reason}"[:500], effects)
        task.config_reports |= {event.node_id}
        state.touch("task", task.task_id)
        if _config_is_bad(state, task):
            stop_task(state, task, f"config: {event.reason}"[:500], effects)
            for node_id in task.config_reports:
                life.forgive(state, node_id)
    elif event.cause != "config":
        losses.lost(state, shard, event.node_id, event.reason, effects, strike=True)


def _config_is_bad(state: PoolState, task: Task) -> bool:
    """Whether the reports show that a task cannot run anywhere: few liars cannot stop one that
    others work on. Its groups fail within seconds of their start, so that a majority is soon
    there."""
    worked = task.served > 0 or any(
        lease.progress > 0
        for group in state.groups.values()
        if group.task_id == task.task_id and group.shard_id
        for lease in state.shards[group.shard_id].leases
    )
    least = min(state.settings.config_reports, max(sum(task.grouped.values()), 1))
    return not worked and len(task.config_reports) >= max(least, task.groups // 2 + 1)


def stop_task(state: PoolState, task: Task, reason: str, effects: Effects) -> None:
    """Stop scheduling a task; its groups are dissolved with the next tick."""
    task.stopped = reason
    state.touch("task", task.task_id)
    effects.add(TaskStopped(task.task_id, reason))


def end(state: PoolState, shard: Shard, to: ShardState, reason: str, effects: Effects) -> None:
    """A shard is done, or given up; nobody has it any more."""
    task = state.tasks[shard.task_id]
    if shard.state is ShardState.QUEUED:
        task.queue.remove(shard.shard_id)
    shard.state, shard.reason = to, reason
    task.open_shards -= 1
    for lease in list(shard.leases):
        drop(state, state.groups[lease.group_id], "the shard has ended", effects)
    state.touch("task", task.task_id)
    state.touch("shard", shard.shard_id)
    done = to is ShardState.DONE
    effects.add(ShardEnded(shard.shard_id, task.task_id, done, shard.accepted_by, reason))
