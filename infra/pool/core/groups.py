"""Groups that exist: a member is silent, lost, replaced; a group is dissolved or gives way.

A lost member is replaced by a spare at its rank before the group is dissolved. Where there is no
spare, a second crippled group gives its nodes. A group gives way only at a shard border.
"""

from infra.pool.core import leases, life
from infra.pool.core.distance import apart, together
from infra.pool.core.events import Effects, GroupDestroyed, MemberReplaced
from infra.pool.core.requirements import Topology
from infra.pool.core.state import Group, Node, NodeState, PoolState, Task

LEAVING = "a node leaves"
"""Why a group gives way that may go on with others."""


def stall(state: PoolState, group: Group, effects: Effects) -> None:
    """A member is silent: the group's shard may go to others."""
    if group.stalled_at is None:
        group.stalled_at = state.now
        state.stalled.setdefault(group.group_id)
        state.free.pop(group.group_id, None)
        state.touch("group", group.group_id)
    leases.suspend(state, group, effects)


def lose_member(state: PoolState, group: Group, node: Node, reason: str, effects: Effects) -> None:
    """A member is out for good: a spare takes its rank, or the group is dissolved."""
    if len(group.members) == 1 or not replace(state, group, node, reason, effects):
        dissolve(state, group, reason, effects)


def replace(state: PoolState, group: Group, lost: Node, reason: str, effects: Effects) -> bool:
    """Put the best spare at the rank of a lost member; False where there is none in range."""
    topology, task = state.topology(group), state.tasks[group.task_id]
    others = [node for node in state.members(group) if node is not lost]
    rank = group.members.index(lost.node_id)
    spare = best_spare(state, topology, task, others, (task.model, rank, len(group.members)))
    if spare is None:
        return False
    leases.drop(state, group, reason, effects)
    group.members[rank] = spare.node_id
    group.version += 1
    group.confirmed.clear()
    group.ready_at = None
    group.created_at = state.now
    state.free.pop(group.group_id, None)
    lost.group_id, spare.group_id = "", group.group_id
    spare.reserved = spare.standby = None
    for node in (lost, spare):
        life.refresh_idle(state, node)
        state.touch("node", node.node_id)
    if all(node.state is NodeState.HEALTHY for node in state.members(group)):
        group.stalled_at = None
        state.stalled.pop(group.group_id, None)
    state.touch("group", group.group_id)
    effects.add(MemberReplaced(group.group_id, rank, lost.node_id, spare.node_id))
    return True


def best_spare(
    state: PoolState,
    topology: Topology,
    task: Task,
    others: list[Node],
    part: tuple[str, int, int],
) -> Node | None:
    """The idle node that fits: with the weights in memory, then on disk, then the nearest."""
    best: tuple[tuple[bool, bool, float], Node] | None = None
    for node_id in state.idle:
        node = state.nodes[node_id]
        if not _fits(state, node, topology, task, others):
            continue
        far = max((apart(node, other) for other in others), default=0.0)
        score = (node.loaded != part, task.model not in node.models, far)
        if best is None or score < best[0]:
            best = (score, node)
    return best[1] if best else None


def _fits(state: PoolState, node: Node, topology: Topology, task: Task, others: list[Node]) -> bool:
    """Whether a node may take a place beside the others in a group of a task."""
    return (
        free_for(state, node, task, topology)
        and topology.requirement.met_by(node.specs)
        and together(node, others, state.settings)
    )


def free_for(state: PoolState, node: Node, task: Task, topology: Topology) -> bool:
    """Whether a node may work for a task, and is not kept for another one or another shape."""
    if task.trusted and not node.trusted:
        return False
    if node.reserved is None or node.reserved[1] < state.now:
        return True
    return (node.reserved[0], node.reserved[2]) == (task.task_id, topology.name)


def dissolve(state: PoolState, group: Group, reason: str, effects: Effects) -> None:
    """End a group; its shard waits again, its healthy nodes are idle."""
    leases.drop(state, group, reason, effects)
    del state.groups[group.group_id]
    state.count(group, -1)
    state.free.pop(group.group_id, None)
    state.stalled.pop(group.group_id, None)
    state.touch("group", group.group_id)
    for node_id in group.members:
        node = state.nodes[node_id]
        node.group_id = ""
        state.touch("node", node_id)
        life.refresh_idle(state, node)
    members = tuple(group.members)
    effects.add(GroupDestroyed(group.group_id, group.topology, group.task_id, members, reason))


def mend(state: PoolState, effects: Effects) -> None:
    """Replace the silent members of stalled groups, with each other's nodes if need be."""
    for group_id in list(state.stalled):
        group = state.groups.get(group_id)
        if group is None or len(group.members) == 1:
            continue
        for node in [n for n in state.members(group) if n.state is not NodeState.HEALTHY]:
            if replace(state, group, node, f"node {node.node_id} is silent", effects):
                continue
            if _sacrifice(state, group, effects):
                replace(state, group, node, f"node {node.node_id} is silent", effects)


def _sacrifice(state: PoolState, group: Group, effects: Effects) -> bool:
    """Dissolve another stalled group whose healthy nodes make this one whole: of no higher
    priority, the least important and youngest first."""
    task = state.tasks[group.task_id]
    others = [
        state.groups[other_id]
        for other_id in state.stalled
        if other_id != group.group_id
        and state.tasks[state.groups[other_id].task_id].priority <= task.priority
    ]
    others.sort(key=lambda g: (state.tasks[g.task_id].priority, -g.created_at, g.group_id))
    chosen = next((other for other in others if _makes_whole(state, group, task, other)), None)
    if chosen is None:
        return False
    dissolve(state, chosen, f"its nodes mend group {group.group_id}", effects)
    return True


def _makes_whole(state: PoolState, group: Group, task: Task, other: Group) -> bool:
    """Whether the healthy nodes of another group can take the places of all silent members."""
    members, topology = state.members(group), state.topology(group)
    whole = [node for node in members if node.state is NodeState.HEALTHY]
    for node in state.members(other):
        usable = node.state is NodeState.HEALTHY and not node.leaving
        if len(whole) < len(members) and usable and _fits(state, node, topology, task, whole):
            whole.append(node)
    return len(whole) == len(members)


def retire(state: PoolState, effects: Effects) -> None:
    """Dissolve groups that are not wanted any more, and such as do not get ready."""
    for group in list(state.groups.values()):
        task = state.tasks.get(group.task_id)
        if task is None or task.stopped:
            reason = task.stopped if task else "the task was deleted"
            dissolve(state, group, reason, effects)
        elif group.give_way and not group.shard_id:
            give_way(state, group, effects)
        elif group.ready_at is None and _loads_too_long(state, group):
            slow = [n for n in group.members if n not in group.confirmed]
            dissolve(state, group, f"not ready in time: {', '.join(slow)}", effects)
            for node_id in slow:
                life.blame(state, node_id, False, "it did not load in time", effects)


def give_way(state: PoolState, group: Group, effects: Effects) -> None:
    """At a shard border: spares take the places of members that leave, or the group ends."""
    leaving = [node for node in state.members(group) if node.leaving]
    if group.give_way == LEAVING and len(group.members) > 1:
        if all(replace(state, group, node, LEAVING, effects) for node in leaving):
            group.give_way = ""
            return
    dissolve(state, group, group.give_way, effects)


def _loads_too_long(state: PoolState, group: Group) -> bool:
    started = max(group.created_at, state.grace_until)
    return state.now - started > state.settings.load_seconds
