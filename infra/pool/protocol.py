"""What every pool of nodes offers to the stages.

A stage submits jobs and waits for their results; it never sees how many nodes there are, nor which
one takes a job. Invariants: a job that was submitted ends in a result or an exception, exactly
once; a job whose node dies is given to another one, and so is a job whose result its check refuses;
a payload is JSON and names files by URI, so that it can go to another machine.
"""

from collections.abc import Callable, Mapping
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
    stranger: bool = False
    """A node that joined by itself may do it, because its result is checked."""
    like: str = ""
    """Jobs of one kind that are alike in this take about the same time, for example the model."""


@dataclass(frozen=True)
class Upload:
    """A file that a node made; untrusted, but its bytes are what the pool says."""

    path: str
    """Below the root of the run's store."""
    sha256: str
    size: int


@dataclass(frozen=True)
class JobResult:
    """What a node made of a job."""

    job_id: str
    node_id: str
    """The public key of the node that held the job, as the pool knows it."""
    output: dict[str, Any]
    seconds: float
    files: tuple[Upload, ...] = ()


Check = Callable[[JobResult], None]
"""Looks at a result before it counts, in a thread of the pool. An exception whose class says
`retryable` refuses the result, and another node tries; any other ends the job. Either is in the
ledger as a refusal, as one that only a lie explains (and with its `evidence`) where the exception
has a true `lie`."""


@dataclass(frozen=True)
class NodeStatus:
    """A node as the pool sees it."""

    node_id: str
    """Its public key, 64 hex digits."""
    state: str
    """A state of infra.pool.core.state.NodeState."""
    grouped: bool
    """It works for a task."""
    trusted: bool
    """It was invited as one of ours."""


class NodePool(Protocol):
    """Nodes that take jobs."""

    def submit(self, job: Job, check: Check | None = None) -> "Future[JobResult]":
        """Queue a job; the future raises JobFailed, NodeLost, PoolClosed or what `check` raised."""
        ...

    def nodes(self) -> list[NodeStatus]:
        """The nodes at this moment."""
        ...

    def distrust(self, node_id: str, reason: str, evidence: Mapping[str, Any]) -> None:
        """Exclude a node that was caught at a lie for good; the ledger says for what."""
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
