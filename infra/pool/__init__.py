"""Where stages get their engine processes: one interface, whatever the machines are."""

from infra.pool.errors import JobFailed, NoNodes, PoolClosed, PoolError
from infra.pool.protocol import Check, Job, JobResult, NodePool, NodeStatus, Upload
from infra.pool.remote import RemotePool

__all__ = [
    "Check",
    "Job",
    "JobFailed",
    "JobResult",
    "NoNodes",
    "NodePool",
    "NodeStatus",
    "PoolClosed",
    "PoolError",
    "RemotePool",
    "Upload",
]
