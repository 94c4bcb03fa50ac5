"""What tasks still want, and whose turn it is."""

import math
from collections import Counter

from infra.pool.core.state import PoolState, Task


def turn(task: Task) -> tuple[int, float, str]:
    """Order of service: the highest priority, then the least memory held per weight."""
    return -task.priority, task.held / task.weight, task.task_id


def waiting_groups(state: PoolState) -> Counter[str]:
    """Groups by task that will take a shard soon: they have none, and load or are ready."""
    return Counter(
        group.task_id
        for group in state.groups.values()
        if not group.shard_id and group.stalled_at is None and not group.give_way
    )


def missing(task: Task, waiting: Counter[str]) -> float:
    """Groups that a task could use more: one for each queued shard that no group waits for.

    What is submitted wants no group: its verdict comes by itself.
    """
    if task.stopped:
        return 0
    return math.inf if task.standing else len(task.queue) - waiting[task.task_id]
