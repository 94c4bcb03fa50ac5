"""New groups: which task gets the next one, and which idle nodes make it.

The task with the least per weight among those of the highest priority that still want a group comes
first; its topologies are tried in its own order. A group is formed whole or not at all. Within one,
round trips are at most `max_rtt_ms` and throughputs within `max_rate_ratio`, each with each;
nodes with the model in memory or on disk are preferred. Some nodes of each class that forms
multi-node groups stay idle to replace lost members, and keep one of its parts loaded.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, islice

from infra.pool.core import groups
from infra.pool.core.demand import missing, turn, waiting_groups
from infra.pool.core.distance import apart, similar, together
from infra.pool.core.events import Effects, GroupCreated
from infra.pool.core.requirements import Specs, Topology
from infra.pool.core.state import ANY_NODE, Group, Node, PoolState, Task

Part = tuple[str, int, int]
"""(model, rank, group size)."""

_CELL = 10.0
"""Degrees of the grid that finds near nodes without looking at all."""
_LOOK = 48
"""Candidates that are compared for one place in a group."""


def form(state: PoolState, effects: Effects) -> None:
    """Form groups out of idle nodes until no task wants or gets one."""
    if state.idle:
        _form(state, effects)
        _stand_by(state)


def _form(state: PoolState, effects: Effects) -> None:
    counts = waiting_groups(state)
    demand = {task.task_id: missing(task, counts) for task in state.tasks.values()}
    waiting = [task for task in state.tasks.values() if demand[task.task_id] > 0]
    pools = _Pools(state) if waiting else None
    while waiting and pools:
        task = min(waiting, key=turn)
        members = _pick(pools, task)
        if members is None:
            waiting.remove(task)
            continue
        topology, nodes = members
        _create(state, task, topology, nodes, effects)
        demand[task.task_id] -= 1
        if demand[task.task_id] <= 0:
            waiting.remove(task)


class _Pools:
    """Idle nodes by specs, and by place for multi-node groups."""

    def __init__(self, state: PoolState):
        self.state = state
        self.classes: dict[Specs, dict[str, Node]] = defaultdict(dict)
        self.cells: dict[tuple[int, int] | None, dict[str, Node]] = defaultdict(dict)
        for node_id in state.idle:
            node = state.nodes[node_id]
            self.classes[node.specs][node_id] = node
            self.cells[_cell(node)][node_id] = node

    def take(self, nodes: list[Node]) -> None:
        """These nodes are in a group now."""
        for node in nodes:
            del self.classes[node.specs][node.node_id]
            del self.cells[_cell(node)][node.node_id]

    def enough(self, topology: Topology) -> bool:
        """Whether a group can be formed and the spares of its topology kept."""
        grouped = sum(task.grouped.get(topology.name, 0) for task in self.state.tasks.values())
        spares = int(grouped * self.state.settings.spare_share)
        fitting = sum(
            len(nodes)
            for specs, nodes in self.classes.items()
            if nodes and topology.requirement.met_by(specs)
        )
        return fitting - spares >= topology.min_size

    def fitting(self, topology: Topology, task: Task) -> Iterator[Node]:
        """Idle nodes that meet the requirement, in order of idleness within each class."""
        for specs, nodes in self.classes.items():
            if nodes and topology.requirement.met_by(specs):
                for node in nodes.values():
                    if groups.free_for(self.state, node, task, topology):
                        yield node

    def near(self, seed: Node, topology: Topology, task: Task) -> list[Node]:
        """Candidates around a node: measured ones first, then its own and the next cells."""
        enough = max(_LOOK, topology.max_size)
        home = _cell(seed)
        rings = [_ring(home, distance) for distance in range(4)] if home else []
        cells = [cell for ring in rings for cell in ring]
        nodes, idle = self.state.nodes, self.state.idle
        measured = {peer: nodes[peer] for peer in seed.rtt_ms if peer in idle}
        around = (
            node
            for cell in [*cells, None]
            for node in self.cells.get(cell, {}).values()
            if node.node_id not in measured
        )
        usable = (
            node
            for node in chain(measured.values(), around)
            if self._goes_with(node, seed, topology, task)
        )
        return list(islice(usable, enough))

    def _goes_with(self, node: Node, seed: Node, topology: Topology, task: Task) -> bool:
        settings = self.state.settings
        return (
            node is not seed
            and topology.requirement.met_by(node.specs)
            and groups.free_for(self.state, node, task, topology)
            and similar(seed, node, settings.max_rate_ratio)
            and apart(seed, node) <= settings.max_rtt_ms
        )


def _cell(node: Node) -> tuple[int, int] | None:
    if node.location is None:
        return None
    return int(node.location[0] // _CELL), int(node.location[1] // _CELL) % int(360 / _CELL)


def _ring(home: tuple[int, int], ring: int) -> list[tuple[int, int]]:
    around, wide = range(-ring, ring + 1), int(360 / _CELL)
    return [
        (home[0] + dy, (home[1] + dx) % wide)
        for dy in around
        for dx in around
        if max(abs(dy), abs(dx)) == ring
    ]


def _pick(pools: _Pools, task: Task) -> tuple[Topology, list[Node]] | None:
    """Members of the next group of a task in the best topology that can be had."""
    for topology in task.topologies or (ANY_NODE,):
        if topology.max_size == 1:
            members = _solo(pools, topology, task)
        else:
            members = _several(pools, topology, task)
        if members:
            pools.take(members)
            return topology, members
    return None


def _solo(pools: _Pools, topology: Topology, task: Task) -> list[Node]:
    best: Node | None = None
    for looked, node in enumerate(pools.fitting(topology, task)):
        if best is None or _warmth(node, task, 1) > _warmth(best, task, 1):
            best = node
        if looked >= _LOOK or (best and _warmth(best, task, 1) == 2):
            break
    return [best] if best else []


def _warmth(node: Node, task: Task, size: int) -> int:
    """2: the weights are in memory for a group of this size, 1: on disk, 0: neither."""
    if node.loaded and node.loaded[0] == task.model and node.loaded[2] == size:
        return 2
    return int(task.model in node.models)


def _several(pools: _Pools, topology: Topology, task: Task) -> list[Node]:
    if not pools.enough(topology):
        return []
    for seed in islice(pools.fitting(topology, task), _LOOK):
        near = pools.near(seed, topology, task)
        if len(near) + 1 < topology.min_size:
            continue
        ranked = sorted(
            (-_warmth(node, task, topology.max_size), apart(seed, node), node.node_id, node)
            for node in near
        )
        chosen = [seed]
        for *_, node in ranked:
            # The seed was compared with all of them already.
            if together(node, chosen[1:], pools.state.settings):
                chosen.append(node)
                if len(chosen) == topology.max_size:
                    break
        if len(chosen) >= topology.min_size:
            return chosen
    return []


def _create(
    state: PoolState, task: Task, topology: Topology, nodes: list[Node], effects: Effects
) -> None:
    members = _ranked(nodes, task)
    # Hexadecimal, as the group file names of the validator want it.
    group_id = f"{state.next_group:016x}"
    state.next_group += 1
    group = Group(group_id, topology.name, task.task_id, [n.node_id for n in members], state.now)
    state.groups[group_id] = group
    state.count(group, 1)
    for node in members:
        node.group_id, node.reserved, node.standby = group_id, None, None
        state.idle.pop(node.node_id, None)
        state.touch("node", node.node_id)
    state.touch("group", group_id)
    state.touch("pool", "next_group")
    effects.add(GroupCreated(group_id, topology.name, task.task_id, tuple(group.members)))


def _ranked(nodes: list[Node], task: Task) -> list[Node]:
    """Nodes in the order of their ranks; who holds the weights of a rank keeps it."""
    size = len(nodes)
    places: list[Node | None] = [None] * size
    rest = []
    for node in sorted(nodes, key=lambda n: n.node_id):
        part = node.loaded
        if part and part[0] == task.model and part[2] == size and places[part[1]] is None:
            places[part[1]] = node
        else:
            rest.append(node)
    return [place if place is not None else rest.pop(0) for place in places]


def _stand_by(state: PoolState) -> None:
    """Have idle nodes load parts of the models that they could be needed for, each rank in turn."""
    parts = _parts(state)
    idle = [state.nodes[node_id] for node_id in state.idle]
    kept: Counter[Part | None] = Counter(node.standby for node in idle if node.standby in parts)
    usable: dict[Specs, list[Part]] = {}
    for node in idle:
        if node.standby in parts:
            continue
        fitting = usable.get(node.specs)
        if fitting is None:
            fitting = [part for part, needs in parts.items() if any(n(node.specs) for n in needs)]
            usable[node.specs] = fitting
        # The part that the fewest idle nodes keep; what the node has loaded first.
        ranked = ((kept[part], part != node.loaded, part) for part in fitting)
        wanted = min(ranked, default=(0, True, None))[2]
        if wanted != node.standby:
            node.standby = wanted
            kept[wanted] += 1
            state.touch("node", node.node_id)


def _parts(state: PoolState) -> dict[Part, list[Callable[[Specs], bool]]]:
    """Parts of the groups of several nodes that there are -> who can have them."""
    found: dict[Part, list[Callable[[Specs], bool]]] = defaultdict(list)
    for task in state.tasks.values():
        for topology in task.topologies:
            if topology.max_size > 1 and task.grouped.get(topology.name):
                for rank in range(topology.max_size):
                    found[task.model, rank, topology.max_size].append(topology.requirement.met_by)
    return found
