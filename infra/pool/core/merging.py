"""Single nodes of a task become one group of the shape that it prefers, where that pays.

The gain is measured: node-seconds per shard, alone and in the preferred shape. A shape that was
never measured gains nothing; formation tries it first, so it is measured wherever it can be had.
"""

from statistics import median

from infra.pool.core.events import Effects
from infra.pool.core.sharing import reserve, room
from infra.pool.core.state import Group, PoolState, Task

_MARGIN = 2.0
"""What is gained must be so many times what is lost."""


def merge(state: PoolState, effects: Effects) -> None:
    """Ask old single nodes of a task to give way for one group, one at a time for each task."""
    for task in state.tasks.values():
        if task.topologies and task.topologies[0].min_size > 1 and task.queue and not task.stopped:
            _merge(state, task, effects)


def _merge(state: PoolState, task: Task, effects: Effects) -> None:
    own = [group for group in state.groups.values() if group.task_id == task.task_id]
    solo = [
        group
        for group in own
        if len(group.members) == 1
        and group.stalled_at is None
        and group.ready_at is not None
        and state.now - group.created_at >= state.settings.merge_min_age
    ]
    if any(group.give_way for group in own) or not _pays(task, solo):
        return
    nodes = room(state, task, task.topologies[0], solo)
    if nodes:
        reserve(state, task, task.topologies[0], nodes, effects)


def _pays(task: Task, solo: list[Group]) -> bool:
    """Whether the gain over the life that the group can expect is worth loading again."""
    shape = task.topologies[0]
    alone = [task.shard_cost[g.topology] for g in solo if g.topology in task.shard_cost]
    merged = task.shard_cost.get(shape.name)
    if not alone or not merged:
        return False
    cost = median(alone)
    work_left = len(task.queue) * cost / sum(task.grouped.values())
    until_a_loss = task.served / ((task.leases_lost + 1) * shape.min_size)
    load = median((g.ready_at or g.created_at) - g.created_at for g in solo)
    # Who reaches its border first waits for the last, at most for a shard.
    lost = load + cost
    return min(work_left, until_a_loss) * (cost / merged - 1.0) > _MARGIN * lost
