"""Nodes that are child processes of this one.

Each child says its node id, the public key that it made, in a first JSON line on its stdout. Then
it reads one JSON line per job from its stdin and answers with one JSON line on its stdout. A child
ends when its stdin closes, so that no node outlives the flow, whatever killed the flow.
Invariants: one thread per node feeds it; a node that dies is started again and its job keeps its
place in the queue, at most `MAX_ATTEMPTS` times; no job is given to two nodes at once.
"""

import contextlib
import heapq
import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

from infra.pool.errors import JobFailed, NodeLost, PoolClosed
from infra.pool.protocol import Job, JobResult, NodeStatus
from toploc.signing import public_key

MAX_ATTEMPTS = 3
STOP_SECONDS = 5.0
LAST_WORDS = 600


@dataclass(order=True)
class _Queued:
    priority: int
    number: int
    job: Job = field(compare=False)
    future: "Future[JobResult]" = field(default_factory=Future, compare=False)
    attempts: int = field(default=0, compare=False)


class _Node:
    """One child process and what is known of it."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str]):
        self.name = name
        self.node_id = ""
        self._command = list(command)
        self._env = dict(env)
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self.process: subprocess.Popen[bytes] | None = None
        self.state = "starting"
        self.jobs_done = 0
        self.distrusted = False
        self.starts = 0

    def start(self) -> subprocess.Popen[bytes]:
        """The running child, started if there is none."""
        if self.process is None or self.process.poll() is not None:
            self.state = "starting"
            self.node_id = ""
            self.starts += 1
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=self._env,
                # A Ctrl-C in the terminal is the flow's to handle, not the node's.
                start_new_session=True,
            )
        return self.process

    def meet(self) -> subprocess.Popen[bytes] | None:
        """The running child, once it has said its node id; None when it did not."""
        process = self.start()
        assert process.stdout is not None
        try:
            if not self.node_id:
                node_id = str(_line(process.stdout).get("node_id"))
                public_key(node_id)
                self.node_id, self.state = node_id, "idle"
        except (OSError, ValueError):
            self.stop()
            return None
        return process

    def ask(self, job: Job) -> dict[str, object] | None:
        """The child's answer to a job; None when the child died."""
        if self.distrusted:
            self.distrusted = False
            self.stop()
        process = self.meet()
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        line = json.dumps({"job_id": job.job_id, "kind": job.kind, "payload": job.payload})
        self.state = "busy"
        try:
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            parsed = _line(process.stdout)
        except (OSError, ValueError):
            self.stop()
            return None
        self.state = "idle"
        return parsed

    def last_words(self) -> str:
        """The end of what the child wrote to stderr."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LAST_WORDS))
        return self._log.read().decode("utf-8", "replace").strip()

    def stop(self) -> None:
        """End the child and everything that it started."""
        process = self.process
        self.state = "dead"
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _line(stream: IO[bytes]) -> dict[str, object]:
    """The next line of a child, which must be a whole JSON object."""
    line = stream.readline()
    parsed = json.loads(line) if line.endswith(b"\n") else None
    if not isinstance(parsed, dict):
        raise ValueError(f"not a JSON object: {line[:80]!r}")
    return parsed


class LocalPool:
    """A fixed number of local nodes; see NodePool.

    `command` starts one node; it must speak the protocol of this module's docstring.
    """

    def __init__(self, nodes: int, command: Sequence[str], env: Mapping[str, str] | None = None):
        if nodes < 1:
            raise ValueError(f"nodes is {nodes}; a pool needs at least 1")
        base = dict(os.environ if env is None else env)
        self._nodes = [_Node(f"local-{number}", command, base) for number in range(nodes)]
        self._queue: list[_Queued] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._open = False
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Start the nodes; they load their models with their first jobs."""
        self._open = True
        for node in self._nodes:
            node.start()
            thread = threading.Thread(target=self._feed, args=(node,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the nodes."""
        self.close()

    def submit(self, job: Job) -> "Future[JobResult]":
        """Queue a job."""
        queued = _Queued(job.priority, next(self._numbers), job)
        with self._changed:
            if not self._open:
                raise PoolClosed(job.job_id)
            heapq.heappush(self._queue, queued)
            self._changed.notify()
        return queued.future

    def nodes(self) -> list[NodeStatus]:
        """The nodes at this moment."""
        return [
            NodeStatus(node.name, node.node_id, node.state, node.jobs_done, max(0, node.starts - 1))
            for node in self._nodes
        ]

    def distrust(self, node_id: str) -> None:
        """Start a node anew before its next job; an id that is not of this pool changes nothing."""
        for node in self._nodes:
            if node.node_id == node_id:
                node.distrusted = True

    def close(self) -> None:
        """Stop all nodes. Jobs that wait, or that a node had, raise PoolClosed."""
        with self._changed:
            self._open = False
            waiting, self._queue = self._queue, []
            self._changed.notify_all()
        for queued in waiting:
            queued.future.set_exception(PoolClosed(queued.job.job_id))
        for node in self._nodes:
            if node.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.process.send_signal(signal.SIGKILL)
        for thread in self._threads:
            thread.join()
        for node in self._nodes:
            node.stop()

    def _feed(self, node: _Node) -> None:
        node.meet()
        while (queued := self._next()) is not None:
            if not queued.future.running() and not queued.future.set_running_or_notify_cancel():
                continue
            queued.attempts += 1
            answer = node.ask(queued.job)
            if answer is None:
                self._lost(node, queued)
            elif "error" in answer:
                queued.future.set_exception(
                    JobFailed(
                        queued.job.job_id,
                        node.name,
                        str(answer.get("error_kind")),
                        str(answer["error"]),
                    )
                )
            else:
                node.jobs_done += 1
                output, seconds = answer["output"], answer["seconds"]
                assert isinstance(output, dict) and isinstance(seconds, float)
                queued.future.set_result(
                    JobResult(queued.job.job_id, node.node_id, output, seconds)
                )

    def _next(self) -> _Queued | None:
        with self._changed:
            while self._open and not self._queue:
                self._changed.wait()
            return heapq.heappop(self._queue) if self._open else None

    def _lost(self, node: _Node, queued: _Queued) -> None:
        with self._changed:
            if not self._open:
                queued.future.set_exception(PoolClosed(queued.job.job_id))
                return
            if queued.attempts < MAX_ATTEMPTS:
                heapq.heappush(self._queue, queued)
                self._changed.notify()
                return
        queued.future.set_exception(NodeLost(queued.job.job_id, queued.attempts, node.last_words()))
