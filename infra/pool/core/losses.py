"""Shards that were lost with the machine that had them, and whose fault that is.

A loss is nobody's fault at first: machines come and go, and the shard is given out again. A node
that loses several different shards is bad, and its strikes tell (`Settings.strikes`); the same
shard again says no more about it. A shard that several nodes lose, each on its own, while other
shards of the task are rarely lost, takes its nodes down: it is given up as soon as chance does not
explain the losses any more, and its nodes are forgiven. Where everything is lost, or there are few
nodes, it is given up after `Settings.infra_losses`.
"""

from infra.pool.core import leases, life
from infra.pool.core.events import Effects
from infra.pool.core.state import OPEN, Group, PoolState, Shard, ShardState, Task

_CHANCE = 1e-9
"""Of giving up a shard whose losses are independent of it."""
_LEAST = 3
"""Distinct nodes that must have lost a shard."""


def held(state: PoolState, group: Group) -> Shard | None:
    """The shard that a group has a lease on."""
    shard = state.shards.get(group.shard_id)
    return shard if shard is not None and leases.lease_of(shard, group.group_id) else None


def lost(
    state: PoolState, shard: Shard, node_id: str, reason: str, effects: Effects, *, strike: bool
) -> None:
    """A node lost a shard, whose lease was taken back; `strike`: it reported so itself."""
    task = state.tasks[shard.task_id]
    task.leases_ended += 1
    task.leases_lost += 1
    fresh = node_id not in shard.lost_by
    shard.lost_by.append(node_id)
    state.touch("task", task.task_id)
    state.touch("shard", shard.shard_id)
    if strike and fresh:
        shard.struck.append(node_id)
        life.blame(state, node_id, False, reason, effects)
    if shard.state in OPEN and _hopeless(state, task, shard):
        why = f"{len(shard.lost_by)} times lost by {len(set(shard.lost_by))} nodes, the last time"
        leases.end(state, shard, ShardState.FAILED, f"infra: {why}: {reason}"[:500], effects)
        for struck in shard.struck:
            life.forgive(state, struck)


def _hopeless(state: PoolState, task: Task, shard: Shard) -> bool:
    own, nodes = len(shard.lost_by), len(set(shard.lost_by))
    if own >= state.settings.infra_losses:
        return True
    # How often the task's other leases are lost, with Laplace's rule where few have ended.
    usual = (task.leases_lost - own + 1) / (task.leases_ended - own + 2)
    return nodes >= _LEAST and usual**nodes < _CHANCE
