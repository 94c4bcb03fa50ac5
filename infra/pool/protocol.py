"""What every pool of nodes offers to the stages.

A stage submits jobs and waits for their results; it never sees how many nodes there are, nor which
one takes a job. Invariants: a job that was submitted ends in a result or an exception, exactly
once; a job whose node dies is given to another one; a payload is JSON and names files by URI, so
that it can go to another machine.
"""

from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self


@dataclass(frozen=True)
class Job:
    """One piece of work for one node."""

    job_id: str
    kind: str
    """Which of the worker's functions runs it, for example `generate`."""
    payload: dict[str, Any]
    priority: int = 0
    """Jobs with a lower number go first; equal ones in the order of submission."""


@dataclass(frozen=True)
class JobResult:
    """What a node made of a job."""

    job_id: str
    node_id: str
    """The public key of the node that held the job, as the pool knows it."""
    output: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class NodeStatus:
    """A node as the pool sees it."""

    name: str
    """Its place in the pool; a node that replaces another one takes its place."""
    node_id: str
    """Its public key, 64 hex digits; empty until it has said it."""
    state: str
    """`starting`, `idle`, `busy` or `dead`."""
    jobs_done: int
    restarts: int


class NodePool(Protocol):
    """Nodes that take jobs."""

    def submit(self, job: Job) -> "Future[JobResult]":
        """Queue a job; the future raises JobFailed, NodeLost or PoolClosed."""
        ...

    def nodes(self) -> list[NodeStatus]:
        """The nodes at this moment."""
        ...

    def distrust(self, node_id: str) -> None:
        """Take a node that was caught at a lie out of service as it is, after its present job."""
        ...

    def close(self) -> None:
        """Stop all nodes; jobs not finished raise PoolClosed."""
        ...

    def __enter__(self) -> Self:
        """Start the nodes."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the nodes."""
        ...
