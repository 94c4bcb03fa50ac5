"""Groups that give way while the pool runs, so that priorities and shares hold not only at first.

An idle group, whose task has no shard for it, goes to any task that has. Work under way goes on to
its shard border and gives way then: to a higher priority, to a trusted task that can only use our
own nodes, and, after patience, to a task of the same priority that has no group at all. What keeps
groups from going to and fro: a group has to be idle, or a task to want it, for `idle_seconds`; and
a task that has groups gets only such as have been ready for as long as they took to load.
"""

from collections import defaultdict
from collections.abc import Iterable

from infra.pool.core import groups
from infra.pool.core.demand import missing, turn, waiting_groups
from infra.pool.core.distance import apart, together
from infra.pool.core.events import Effects
from infra.pool.core.requirements import Topology
from infra.pool.core.state import ANY_NODE, Group, Node, PoolState, Task

_BATCH = 16
"""Groups that a task is given at one time."""
_LOOK = 512
"""Nodes that are looked at for one of them."""
_SEEDS = 8
"""First members that are tried."""


def share(state: PoolState, effects: Effects) -> None:
    """Give idle groups to tasks that want some, and ask busy ones to give way."""
    waiting = waiting_groups(state)
    asked = _asked(state)
    for task in sorted(state.tasks.values(), key=turn):
        wanted = min(missing(task, waiting), _BATCH)
        if wanted <= 0:
            task.starved_since = None
            _go_on(state, asked.get(task.task_id, []))
            continue
        if task.starved_since is None:
            task.starved_since = state.now
        givers = _idle(state, task)
        # Those that were asked before come first to their shard borders.
        if task.task_id not in asked:
            givers += _later(state, task)
        while wanted > 0 and _make_room(state, task, givers, effects):
            wanted -= 1
        if not task.groups and task.task_id not in asked:
            _make_room(state, task, _old(state, task), effects)


def _asked(state: PoolState) -> dict[str, list[Group]]:
    """Groups that are about to give way, by the task that they do it for."""
    found: dict[str, list[Group]] = defaultdict(list)
    for group in state.groups.values():
        if group.give_way:
            for task_id in {n.reserved[0] for n in state.members(group) if n.reserved is not None}:
                found[task_id].append(group)
    return found


def _go_on(state: PoolState, asked: list[Group]) -> None:
    """The task has what it wanted by now: nobody needs to give way to it."""
    for group in asked:
        members = state.members(group)
        group.give_way = groups.LEAVING if any(node.leaving for node in members) else ""
        state.touch("group", group.group_id)
        for node in members:
            node.reserved = None
            state.touch("node", node.node_id)


def _idle(state: PoolState, task: Task) -> list[Group]:
    """Groups whose own tasks have had nothing for them for some time, the idlest first."""
    found = []
    for group_id, since in state.free.items():
        group = state.groups[group_id]
        owner = state.tasks[group.task_id]
        if (
            owner is not task
            and not owner.standing
            and not owner.queue
            and not group.give_way
            and state.now - since >= state.settings.idle_seconds
            # A standing task wants all there is: it gets no more than its share of what waits.
            and (not task.standing or turn(task) < turn(owner))
            and _worth(state, group, task)
        ):
            found.append((since, group_id, group))
    return [group for *_, group in sorted(found, key=lambda item: item[:2])]


def _worth(state: PoolState, group: Group, task: Task) -> bool:
    """Whether a group has paid for its loading, or the task has nothing else."""
    if not task.groups:
        return True
    if group.ready_at is None or _wanted_for(state, task) < state.settings.idle_seconds:
        return False
    return state.now - group.ready_at >= group.ready_at - group.created_at


def _wanted_for(state: PoolState, task: Task) -> float:
    return state.now - (task.starved_since if task.starved_since is not None else state.now)


def _later(state: PoolState, task: Task) -> list[Group]:
    """Groups with work that goes after this task's, of the best served tasks first."""
    if _wanted_for(state, task) < state.settings.idle_seconds:
        return []
    owners = {owner.task_id for owner in state.tasks.values() if _goes_before(task, owner)}
    return _best_served(state, [g for g in _going_on(state, owners) if _worth(state, g, task)])


def _old(state: PoolState, task: Task) -> list[Group]:
    """Single nodes of tasks of no higher priority, for one that has starved for long."""
    settings = state.settings
    if _wanted_for(state, task) < settings.merge_patience:
        return []
    others = state.tasks.values()
    owners = {t.task_id for t in others if t is not task and t.priority <= task.priority}
    return _best_served(
        state,
        [
            group
            for group in _going_on(state, owners)
            if len(group.members) == 1 and state.now - group.created_at >= settings.merge_min_age
        ],
    )


def _going_on(state: PoolState, owners: set[str]) -> list[Group]:
    return [
        group
        for group in (state.groups.values() if owners else ())
        if group.task_id in owners and not group.give_way and group.stalled_at is None
    ]


def _best_served(state: PoolState, found: list[Group]) -> list[Group]:
    return sorted(found, key=lambda g: (turn(state.tasks[g.task_id]), g.group_id), reverse=True)


def _goes_before(task: Task, owner: Task) -> bool:
    """Whether a task's work goes before that of another's groups."""
    if task.priority != owner.priority:
        return task.priority > owner.priority
    # Others can do what is not only for our own nodes; but nobody is left with nothing for more.
    return task.trusted and not owner.trusted and (owner.groups > 1 or not task.groups)


def _make_room(state: PoolState, task: Task, givers: list[Group], effects: Effects) -> bool:
    """Have groups give way for one group of a task: as many as it needs, or none."""
    for topology in task.topologies or (ANY_NODE,):
        nodes = room(state, task, topology, givers)
        if nodes:
            reserve(state, task, topology, nodes, effects)
            givers[:] = [g for g in givers if g.group_id in state.groups and not g.give_way]
            return True
    return False


def room(
    state: PoolState, task: Task, topology: Topology, givers: list[Group]
) -> list[Node] | None:
    """Nodes of such groups, and idle ones, that could be together in one group of a task."""

    def usable(nodes: Iterable[Node]) -> list[Node]:
        return [
            node
            for node in nodes
            if topology.requirement.met_by(node.specs)
            and not node.leaving
            and groups.free_for(state, node, task, topology)
        ]

    offered = usable(node for group in givers[:_LOOK] for node in state.members(group))
    idle = [state.nodes[node_id] for node_id in list(state.idle)[:_LOOK]]
    places = {node.node_id: place for place, node in enumerate(offered)}
    others = offered + (usable(idle) if topology.min_size > 1 else [])
    for seed in offered[:_SEEDS]:
        chosen = [seed]
        # Idle nodes first: they cost nobody anything.
        ranked = sorted(
            (node.node_id in places, apart(seed, node), node.node_id) for node in others
        )
        for _, _, node_id in ranked:
            if len(chosen) == topology.min_size:
                break
            node = state.nodes[node_id]
            if node is not seed and together(node, chosen, state.settings):
                chosen.append(node)
        if len(chosen) == topology.min_size:
            return chosen
    return None


def reserve(
    state: PoolState, task: Task, topology: Topology, nodes: list[Node], effects: Effects
) -> None:
    """Keep nodes for a task; their groups end at once where they are idle, else later."""
    reason = f"it gives way to task {task.name}"
    until = state.now + state.settings.idle_seconds
    for node in nodes:
        group = state.groups.get(node.group_id)
        if group is not None and group.shard_id:
            group.give_way = reason
            state.touch("group", group.group_id)
            until = state.now + state.settings.stuck_seconds
    for node in nodes:
        group = state.groups.get(node.group_id)
        if group is not None and not group.give_way:
            groups.dissolve(state, group, reason, effects)
        node.reserved = (task.task_id, until, topology.name)
        state.touch("node", node.node_id)
