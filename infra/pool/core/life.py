"""A node's life: registered, proven, healthy, silent, dead, excluded.

Silence moves work after `unhealthy_after`; it takes the node out of its group only after
`dead_after`, so that a short partition costs a second lease and no group. Only a node's own silence
counts: a gap in our time gives everybody a new start.
"""

import heapq

from infra.pool.core import groups, leases, losses
from infra.pool.core.events import (
    Beat,
    CanaryGiven,
    ChallengeWanted,
    Effects,
    GroupReady,
    NodeChanged,
    Proved,
    Registered,
)
from infra.pool.core.state import Group, Node, NodeState, PoolState

OUT = frozenset({NodeState.EJECTED, NodeState.BANNED})
_MOST_RTTS = 256
"""Round trips that are kept of a node, the newest: it may claim as many as it likes."""
_BACK = frozenset({NodeState.WAITING, NodeState.UNHEALTHY, NodeState.DEAD})


def set_state(state: PoolState, node: Node, new: NodeState, reason: str, effects: Effects) -> None:
    """Change a node's state and tell it."""
    old, node.state, node.since = node.state, new, state.now
    state.touch("node", node.node_id)
    effects.add(NodeChanged(node.node_id, old, new, reason))
    refresh_idle(state, node)


def refresh_idle(state: PoolState, node: Node) -> None:
    """Keep the index of nodes that a group could take."""
    usable = node.state is NodeState.HEALTHY and node.proven and not node.leaving
    if usable and not node.group_id:
        state.idle.setdefault(node.node_id)
    else:
        state.idle.pop(node.node_id, None)


def registered(state: PoolState, event: Registered, effects: Effects) -> None:
    """A new node, or a known one that has started again."""
    node = state.nodes.get(event.node_id)
    if node is None:
        node = Node(event.node_id, event.specs, NodeState.DISCOVERED, state.now, state.now)
        state.nodes[event.node_id] = node
    elif node.state in OUT:
        return
    elif node.group_id:
        # What it had in memory is gone, and with it its place.
        _lost_with_its_shard(state, node, "it restarted", effects)
    same = node.proven and node.specs == event.specs
    node.specs, node.location, node.address = event.specs, event.location, event.address
    node.models, node.trusted, node.leaving = event.models, event.trusted, False
    node.loaded = node.standby = None
    node.proven, node.last_seen = same, state.now
    new = NodeState.WAITING if same else NodeState.DISCOVERED
    set_state(state, node, new, "registered", effects)
    state.look_at(node, state.now + state.settings.challenge_seconds)
    if not same:
        effects.add(ChallengeWanted(node.node_id))


def proved(state: PoolState, event: Proved, effects: Effects) -> None:
    """The proof of compute was judged."""
    node = state.nodes.get(event.node_id)
    if node is None or node.state is not NodeState.DISCOVERED:
        return
    if not event.passed:
        set_state(state, node, NodeState.EJECTED, "it failed the proof of compute", effects)
        return
    node.proven, node.rate, node.last_seen = True, event.rate, state.now
    set_state(state, node, NodeState.WAITING, "proven", effects)
    state.look_at(node, state.now + state.settings.unhealthy_after)


def tried(state: PoolState, event: CanaryGiven) -> None:
    """A node that is being admitted has more time."""
    node = state.nodes.get(event.node_id)
    if node is not None and node.state is NodeState.DISCOVERED:
        state.look_at(node, state.now + event.seconds)


def seen(state: PoolState, node: Node, effects: Effects) -> None:
    """A heartbeat of a node that is not excluded."""
    node.last_seen, node.doubted = state.now, False
    if node.state in _BACK and node.proven:
        set_state(state, node, NodeState.HEALTHY, "heartbeat", effects)
        state.look_at(node, state.now + state.settings.unhealthy_after)
        if node.group_id:
            _unstall(state, state.groups[node.group_id], effects)


def beat(state: PoolState, event: Beat, effects: Effects) -> None:
    """A heartbeat with a report."""
    node = state.nodes.get(event.node_id)
    if node is None or node.state in OUT:
        return
    seen(state, node, effects)
    if event.models is not None and event.models != node.models:
        node.models = event.models
        state.touch("node", node.node_id)
    for peer_id, milliseconds in event.rtt_ms:
        if peer_id in state.nodes:
            node.rtt_ms.pop(peer_id, None)
            node.rtt_ms[peer_id] = milliseconds
    for peer_id in list(node.rtt_ms)[:-_MOST_RTTS]:
        del node.rtt_ms[peer_id]
    if event.standing_by and node.standby and node.loaded != node.standby:
        node.loaded = node.standby
        node.models |= {node.standby[0]}
        state.touch("node", node.node_id)
    group = state.groups.get(node.group_id)
    if group is None or event.group_id != group.group_id:
        return
    if event.version == group.version and node.node_id not in group.confirmed:
        _confirm(state, group, node, effects)
    for peer_id in event.lost_peers:
        _peer_lost(state, group, peer_id)
    shard = state.shards.get(group.shard_id)
    lease = leases.lease_of(shard, group.group_id) if shard else None
    if lease is not None and event.shard_id == group.shard_id:
        lease.renewed_at = state.now
        progress = min(max(event.progress, 0.0), 1.0)
        if progress > lease.progress:
            lease.progress, lease.progress_at = progress, state.now


def _peer_lost(state: PoolState, group: Group, peer_id: str) -> None:
    """A member's word makes a peer's silence count sooner; alone it counts for nothing."""
    peer = state.nodes.get(peer_id)
    if peer is not None and peer.group_id == group.group_id and peer.state is NodeState.HEALTHY:
        at = peer.last_seen + state.settings.peer_lost_after
        if at < peer.due:
            peer.doubted = True
            state.look_at(peer, at)


def _confirm(state: PoolState, group: Group, node: Node, effects: Effects) -> None:
    task = state.tasks[group.task_id]
    node.loaded = (task.model, group.members.index(node.node_id), len(group.members))
    node.models |= {task.model}
    group.confirmed.add(node.node_id)
    state.touch("node", node.node_id)
    state.touch("group", group.group_id)
    if len(group.confirmed) == len(group.members):
        group.ready_at = state.now
        effects.add(GroupReady(group.group_id))
        if group.stalled_at is None and not group.shard_id:
            state.free[group.group_id] = state.now


def _unstall(state: PoolState, group: Group, effects: Effects) -> None:
    if all(node.state is NodeState.HEALTHY for node in state.members(group)):
        group.stalled_at = None
        state.stalled.pop(group.group_id, None)
        state.touch("group", group.group_id)
        if group.shard_id:
            leases.resume(state, group, effects)
        elif group.ready_at is not None:
            state.free[group.group_id] = state.now


def gone(state: PoolState, node: Node, reason: str, effects: Effects) -> None:
    """The node's process is known to have ended."""
    if node.state not in OUT:
        _lost_with_its_shard(state, node, reason, effects)
        node.loaded = None
        set_state(state, node, NodeState.DEAD, reason, effects)
        state.look_at(node, state.now + state.settings.forget_after)


def exclude(state: PoolState, node: Node, ban: bool, reason: str, effects: Effects) -> None:
    """Out of its group and not back; a ban is never undone by itself."""
    new = NodeState.BANNED if ban else NodeState.EJECTED
    if node.state in (new, NodeState.BANNED):
        return
    _out_of_group(state, node, reason, effects)
    set_state(state, node, new, reason, effects)


def blame(state: PoolState, node_id: str, hard: bool, reason: str, effects: Effects) -> None:
    """Count a soft fault, or ban for a hard one."""
    node = state.nodes.get(node_id)
    if node is None or node.state in OUT:
        return
    node.strikes += 1
    state.touch("node", node_id)
    if hard:
        exclude(state, node, True, reason, effects)
    elif node.strikes >= state.settings.strikes:
        exclude(state, node, False, f"{node.strikes} faults, the last: {reason}", effects)


def forgive(state: PoolState, node_id: str) -> None:
    """Take a soft fault back that was not the node's."""
    if node_id in state.nodes:
        node = state.nodes[node_id]
        node.strikes = max(node.strikes - 1, 0)
        state.touch("node", node_id)


def _out_of_group(state: PoolState, node: Node, reason: str, effects: Effects) -> None:
    if node.group_id:
        groups.lose_member(state, state.groups[node.group_id], node, reason, effects)


def _lost_with_its_shard(state: PoolState, node: Node, reason: str, effects: Effects) -> None:
    shard = losses.held(state, state.groups[node.group_id]) if node.group_id else None
    _out_of_group(state, node, reason, effects)
    if shard is not None:
        losses.lost(state, shard, node.node_id, reason, effects, strike=False)


def silence(state: PoolState, effects: Effects) -> None:
    """Look at the nodes whose time has come."""
    if state.now < state.grace_until:
        return
    while state.due and state.due[0][0] <= state.now:
        at, node_id = heapq.heappop(state.due)
        node = state.nodes.get(node_id)
        if node is not None and node.due == at:
            _look(state, node, effects)


def _look(state: PoolState, node: Node, effects: Effects) -> None:
    settings, silent = state.settings, state.now - node.last_seen
    patience = settings.peer_lost_after if node.doubted else settings.unhealthy_after
    if node.state is NodeState.DISCOVERED:
        del state.nodes[node.node_id]
        state.touch("node", node.node_id)
    elif node.state is NodeState.HEALTHY and silent >= patience:
        set_state(state, node, NodeState.UNHEALTHY, f"silent for {silent:.0f} s", effects)
        state.look_at(node, node.last_seen + settings.dead_after)
        if node.group_id:
            groups.stall(state, state.groups[node.group_id], effects)
    elif node.state is NodeState.HEALTHY:
        state.look_at(node, node.last_seen + settings.unhealthy_after)
    elif node.state in (NodeState.UNHEALTHY, NodeState.WAITING):
        if silent >= settings.dead_after:
            gone(state, node, f"silent for {silent:.0f} s", effects)
        else:
            state.look_at(node, node.last_seen + settings.dead_after)
    elif node.state is NodeState.DEAD:
        if silent >= settings.forget_after and not node.group_id:
            del state.nodes[node.node_id]
            state.touch("node", node.node_id)
        else:
            state.look_at(node, state.now + settings.forget_after)
