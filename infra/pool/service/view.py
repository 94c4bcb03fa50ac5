"""What a node is told with its heartbeat, and tasks as people see them.

The same variables as in the original are substituted. Invariant: for one version of a group the
answer is the same, word for word: `${TIMESTAMP}` is when the group got this version, upload counts
are those from before it. A node restarts its container when the text changes, so nothing in it may
change by itself.
"""

import hashlib
import re
from collections.abc import Mapping

from infra.pool import wire
from infra.pool.core import leases
from infra.pool.core.errors import BadTask
from infra.pool.core.requirements import parse_topology
from infra.pool.core.state import Group, Node, Task
from infra.pool.service.pool import Pool

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
MOUNT_VARIABLES = frozenset({"TASK_ID", "GROUP_ID", "TIMESTAMP", "NODE_ADDRESS"})


def substitute(text: str, values: Mapping[str, str]) -> str:
    """`${NAME}` replaced once where the name is known; the rest stays as it is."""
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def core_task(task: wire.TaskView, pool: Pool) -> Task:
    """The scheduler's side of a task; BadTask, BadTopology say what it cannot be."""
    for mount in task.volume_mounts or ():
        for path in (mount.host_path, mount.container_path):
            unknown = set(_VARIABLE.findall(path)) - MOUNT_VARIABLES
            if unknown:
                raise BadTask(
                    f"volume mount {path!r} has the variables {', '.join(sorted(unknown))}; "
                    f"allowed are {', '.join(sorted(MOUNT_VARIABLES))}"
                )
    scheduling = task.scheduling_config or wire.SchedulingConfig()
    groups = scheduling.plugins.node_groups
    names = groups.allowed_topologies if groups else []
    labels = (task.metadata.labels if task.metadata else None) or {}
    return Task(
        task_id=task.id,
        name=task.name,
        model=labels.get("model", task.image),
        topologies=tuple(parse_topology(name, pool.topologies) for name in names),
        priority=scheduling.priority,
        weight=scheduling.weight,
        created_at=task.created_at / 1000.0,
        standing=not task.sharded,
        trusted=task.trusted,
    )


def task_view(pool: Pool, task_id: str) -> wire.TaskView:
    """A task with what became of it."""
    spec, state = pool.tasks[task_id], pool.state.tasks[task_id]
    return spec.model_copy(update={"open_shards": state.open_shards, "stopped": state.stopped})


def heartbeat_data(pool: Pool, node: Node, earlier_uploads: int) -> wire.HeartbeatData:
    """What the node has to do now."""
    data = wire.HeartbeatData(
        orders=pool.orders.get(node.node_id, []),
        standby=_standby(pool, node),
        register_again=not node.proven,
        leaving=node.leaving,
    )
    group = pool.state.groups.get(node.group_id)
    if group is not None:
        data.group = group_view(pool, group, node)
        data.current_task = assignment(pool, group, node, earlier_uploads)
        shard = pool.state.shards.get(group.shard_id)
        lease = leases.lease_of(shard, group.group_id) if shard else None
        if lease is not None:
            data.shard_id, data.leased_at = group.shard_id, lease.granted_at
    return data


def named(data: wire.HeartbeatData) -> tuple[str, str]:
    """(JSON of what a node is told, a name for it)."""
    text = data.model_dump_json()
    return text, hashlib.sha256(text.encode()).hexdigest()[:32]


def group_view(pool: Pool, group: Group, node: Node) -> wire.GroupView:
    """The group as its member sees it."""
    return wire.GroupView(
        group_id=group.group_id,
        version=group.version,
        index=group.members.index(node.node_id),
        size=len(group.members),
        task_id=group.task_id,
        members=[peer(pool, node_id) for node_id in group.members],
    )


def peer(pool: Pool, node_id: str) -> wire.Peer:
    """How a node is reached."""
    card = pool.cards[node_id]
    return wire.Peer(
        node_id=node_id,
        p2p_id=card.p2p_id,
        p2p_addresses=card.p2p_addresses,
        address=f"{card.ip_address}:{card.port}",
    )


def assignment(pool: Pool, group: Group, node: Node, earlier_uploads: int) -> wire.Assignment:
    """The task as this member of the group has to run it."""
    members = group.members
    index = members.index(node.node_id)
    values = {
        "GROUP_INDEX": str(index),
        "GROUP_SIZE": str(len(members)),
        "GROUP_ID": group.group_id,
        "NEXT_P2P_ADDRESS": pool.cards[members[(index + 1) % len(members)]].p2p_id,
        "TOTAL_UPLOAD_COUNT": str(earlier_uploads),
        "LAST_FILE_IDX": str(max(earlier_uploads - 1, 0)),
        "TASK_ID": group.task_id,
        "NODE_ADDRESS": node.node_id,
    }
    return _filled(pool.tasks[group.task_id], values, str(int(group.created_at)))


def _standby(pool: Pool, node: Node) -> wire.Standby | None:
    """What an idle node keeps loaded: a rank of a task whose work comes as shards."""
    if node.standby is None or node.group_id:
        return None
    model, index, size = node.standby
    for task in pool.state.tasks.values():
        shapes = {topology.max_size for topology in task.topologies}
        if (task.model, task.standing) != (model, False) or size not in shapes or task.stopped:
            continue
        values = dict.fromkeys(
            ("GROUP_ID", "NEXT_P2P_ADDRESS", "TOTAL_UPLOAD_COUNT", "LAST_FILE_IDX"), ""
        ) | {
            "GROUP_INDEX": str(index),
            "GROUP_SIZE": str(size),
            "TASK_ID": task.task_id,
            "NODE_ADDRESS": node.node_id,
        }
        assigned = _filled(pool.tasks[task.task_id], values, "")
        return wire.Standby(task=assigned, index=index, size=size)
    return None


def _filled(
    task: wire.TaskView, values: Mapping[str, str], group_created_at: str
) -> wire.Assignment:
    in_mounts = dict(values) | {"TIMESTAMP": group_created_at}
    env = {name: substitute(text, values) for name, text in (task.env_vars or {}).items()}
    return wire.Assignment(
        id=task.id,
        name=task.name,
        image=task.image,
        env_vars=env | {"GROUP_INDEX": values["GROUP_INDEX"]},
        cmd=None if task.cmd is None else [substitute(text, values) for text in task.cmd],
        entrypoint=task.entrypoint,
        volume_mounts=[
            wire.VolumeMount(
                host_path=substitute(mount.host_path, in_mounts),
                container_path=substitute(mount.container_path, in_mounts),
            )
            for mount in task.volume_mounts or ()
        ],
        sharded=task.sharded,
    )
