"""Where stages get their engine processes: one interface, whatever the machines are."""

from infra.pool.errors import JobFailed, NodeLost, PoolClosed, PoolError
from infra.pool.local import LocalPool
from infra.pool.protocol import Job, JobResult, NodePool, NodeStatus

__all__ = [
    "Job",
    "JobFailed",
    "JobResult",
    "LocalPool",
    "NodeLost",
    "NodePool",
    "NodeStatus",
    "PoolClosed",
    "PoolError",
]
