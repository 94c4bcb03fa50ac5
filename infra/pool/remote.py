"""NodePool over the pool's service: a job is a shard of a task, leased to whichever node is free.

Invariants: a result counts when its check has passed, and only then does the service hear that the
shard is done; a result that the check refuses is counted against its node and the shard goes to
another one, `MAX_REFUSALS` times; results are read in order from where reading stopped, so that
none is lost with a connection or a restart of the service, and one that comes twice changes
nothing. The tasks are deleted when the pool is closed, and by the service when their owner is gone.
"""

import contextlib
import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from pydantic import ConfigDict

from infra.pool.client import PoolClient
from infra.pool.errors import JobFailed, NoNodes, PoolClosed, PoolError, RequestRefused
from infra.pool.protocol import Check, Job, JobResult, NodeStatus, Upload
from infra.pool.wire import (
    Answer,
    Exclusion,
    NewShard,
    ResultRow,
    Results,
    ShardsRequest,
    TaskAnswer,
    TaskRequest,
    Verdict,
)

POLL_SECONDS = 20.0
JOIN_SECONDS = 5.0
OWNER_SECONDS = 900.0
"""The service deletes the tasks when nobody has asked for results for so long."""
MAX_REFUSALS = 3
CHECKERS = 16
"""Results that are checked at the same time; a check mostly waits for the upload reader."""
MAX_REASON = 2000


class _Nodes(Answer):
    """Answer to GET /nodes."""

    model_config = ConfigDict(extra="ignore")

    nodes: list[dict[str, Any]]


@dataclass
class _Submitted:
    job: Job
    check: Check | None
    future: "Future[JobResult]" = field(default_factory=Future)
    refusals: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    """One result at a time is checked."""


class RemotePool:
    """One task of a service; start it with `with`."""

    def __init__(
        self,
        client: PoolClient,
        *,
        name: str,
        image: str,
        topologies: Iterable[str] = (),
        strangers: bool = False,
        trouble: Callable[[], str] = lambda: "",
    ):
        """Jobs go to nodes that run `image`.

        Args:
            client: with the admin key.
            name: of the task, for people; a random part is added.
            image: what the nodes run; it answers jobs as infra/pool/agent/worker.py says.
            topologies: shapes of group that can work on it, best first; none: one node of any kind.
            strangers: nodes that joined by themselves get those jobs that strangers may do, as a
                task of its own; all other work is for nodes with an invite for trusted ones.
            trouble: why no node will ever come again, or ''.
        """
        plugins = {"node_groups": {"allowed_topologies": list(topologies)}} if topologies else {}
        self._mark = secrets.token_hex(4)
        request = {
            "name": f"{name}-{self._mark}",
            "image": image,
            "sharded": True,
            "trusted": True,
            "metadata": {"labels": {"model": image, "run": name}},
            "scheduling_config": {"plugins": plugins},
            "owner_seconds": OWNER_SECONDS,
        }
        self._requests = [TaskRequest.model_validate(request)]
        if strangers:
            other = request | {"name": f"{name}-strangers-{self._mark}", "trusted": False}
            self._requests.append(TaskRequest.model_validate(other))
        self._client, self._trouble = client, trouble
        self._task_ids: list[str] = []
        """The task for our own nodes, then that for strangers, if there is one."""
        self._numbers = itertools.count()
        self._open = False
        self._jobs: dict[str, _Submitted] = {}
        self._lock = threading.Lock()
        self._checkers = ThreadPoolExecutor(CHECKERS, "check")
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Create the tasks."""
        self._open = True
        for request in self._requests:
            task_id = self._client.call("POST", "/tasks", request, TaskAnswer).task.id
            self._task_ids.append(task_id)
            reader = threading.Thread(target=self._read, args=(task_id,), daemon=True)
            reader.start()
            self._readers.append(reader)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete the tasks."""
        self.close()

    def submit(self, job: Job, check: Check | None = None) -> "Future[JobResult]":
        """Queue a job; one that is cancelled before a node has it is not done.

        What a node makes of one that is cancelled later still goes to its check.
        """
        submitted = _Submitted(job, check)
        shard_id = f"{self._mark}.{next(self._numbers)}"
        with self._lock:
            if not self._open:
                raise PoolClosed(job.job_id)
            self._jobs[shard_id] = submitted
        shard = NewShard(
            shard_id=shard_id,
            payload={"kind": job.kind, "payload": job.payload},
            kind=f"{job.kind}:{job.like}"[:200],
            priority=job.priority,
        )
        task_id = self._task_ids[-1 if job.stranger else 0]
        try:
            self._client.call("POST", f"/tasks/{task_id}/shards", ShardsRequest(shards=[shard]))
        except PoolError:
            self._jobs.pop(shard_id, None)
            raise
        submitted.future.add_done_callback(lambda future: self._cancelled(shard_id, future))
        return submitted.future

    def waiting(self) -> int:
        """Jobs without a result."""
        return len(self._jobs)

    def nodes(self) -> list[NodeStatus]:
        """The nodes of the service at this moment."""
        listed = self._client.call("GET", "/nodes", answer=_Nodes).nodes
        return [
            NodeStatus(node["address"], node["status"], bool(node["group"]), node["trusted"])
            for node in listed
        ]

    def distrust(self, node_id: str, reason: str, evidence: Mapping[str, Any]) -> None:
        """Ban a node; one that this service does not know changes nothing."""
        ban = Exclusion(reason=reason[:MAX_REASON], evidence=dict(evidence))
        try:
            self._client.call("POST", f"/nodes/{node_id}/ban", ban)
        except RequestRefused as error:
            if error.status != 404:
                raise

    def close(self) -> None:
        """Delete the tasks; jobs not finished raise PoolClosed."""
        with self._lock:
            was_open, self._open = self._open, False
            waiting, self._jobs = self._jobs, {}
        for submitted in waiting.values():
            if not submitted.future.done():
                submitted.future.set_exception(PoolClosed(submitted.job.job_id))
        self._checkers.shutdown(cancel_futures=True)
        for task_id in self._task_ids if was_open else ():
            # The service deletes a task by itself whose owner is not heard of.
            with contextlib.suppress(PoolError):
                self._client.call("DELETE", f"/tasks/{task_id}", patience=2.0)
        for reader in self._readers:
            reader.join(JOIN_SECONDS)

    def _cancelled(self, shard_id: str, future: "Future[JobResult]") -> None:
        if future.cancelled() and self._open:
            self._client.call("POST", f"/shards/{shard_id}/drop")

    def _read(self, task_id: str) -> None:
        after = 0
        while self._open:
            try:
                path = f"/tasks/{task_id}/results?after={after}&wait_seconds={POLL_SECONDS}"
                rows = self._client.call("GET", path, answer=Results, timeout=60.0).results
            except PoolError as error:
                self._fail(error)
                return
            for row in rows:
                after = row.seq
                self._take(row)
            if trouble := self._trouble():
                self._fail(NoNodes(trouble))

    def _fail(self, error: PoolError) -> None:
        """The task is gone, or the service does not come back."""
        with self._lock:
            waiting, self._jobs = self._jobs, {}
            closing, self._open = not self._open, False
        for submitted in waiting.values():
            if not closing and not submitted.future.done():
                submitted.future.set_exception(error)

    def _take(self, row: ResultRow) -> None:
        submitted = self._jobs.get(row.shard_id)
        if row.state == "stopped":
            self._fail(PoolError(f"the service stopped the run's task: {row.reason}"))
        elif submitted is None or not self._open:
            return
        elif row.state == "failed":
            self._jobs.pop(row.shard_id, None)
            _settle(submitted, JobFailed(submitted.job.job_id, row.reason))
        elif row.state == "submitted" and submitted.check is None:
            # At once: all checkers may be waiting for such a result.
            self._check(row, submitted)
        elif row.state == "submitted":
            self._checkers.submit(self._check, row, submitted)

    def _check(self, row: ResultRow, submitted: _Submitted) -> None:
        with submitted.lock:
            if row.shard_id in self._jobs:
                self._check_first(row, submitted)

    def _check_first(self, row: ResultRow, submitted: _Submitted) -> None:
        result = JobResult(
            submitted.job.job_id,
            row.node_id,
            row.output,
            row.seconds,
            tuple(Upload(file.name, file.sha256, file.size) for file in row.files),
        )
        try:
            if submitted.check is not None:
                submitted.check(result)
        except PoolClosed:
            return  # nobody's fault, and nobody waits any more
        except Exception as error:
            self._refuse(row, submitted, error)
            return
        self._jobs.pop(row.shard_id, None)
        _settle(submitted, result)
        self._judge(row, Verdict(group_id=row.group_id, accepted=True))

    def _refuse(self, row: ResultRow, submitted: _Submitted, error: Exception) -> None:
        """The node's fault: another one tries. Ours: the job ends with it."""
        faulty = bool(getattr(error, "retryable", False))
        submitted.refusals += 1
        final = not faulty or submitted.refusals >= MAX_REFUSALS
        if final:
            self._jobs.pop(row.shard_id, None)
        reason = f"{type(error).__name__}: {error}"[:MAX_REASON]
        guilty = row.node_ids if faulty or getattr(error, "strike", False) else []
        self._judge(
            row,
            Verdict(
                group_id=row.group_id, accepted=False, final=final, guilty=guilty, reason=reason,
                hard=bool(getattr(error, "lie", False)), evidence=getattr(error, "evidence", {}),
            ),
        )  # fmt: skip
        if final:
            _settle(submitted, error)

    def _judge(self, row: ResultRow, verdict: Verdict) -> None:
        try:
            self._client.call("POST", f"/shards/{row.shard_id}/verdict", verdict)
        except RequestRefused:
            # It came twice, or another group's result was accepted.
            pass
        except PoolError as error:
            self._fail(error)


def _settle(submitted: _Submitted, outcome: JobResult | Exception) -> None:
    future = submitted.future
    if future.done() or not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, JobResult):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
