"""Works on the shards that the node's group has leases on, one at a time, in a thread of its own.

Invariants: there is one worker, started for one rank of one task, which lives on where the group
changes and it would be started just so again; a shard is asked for once for each lease; a lease
that was taken back is worked on to its end for nothing, because loading a model takes longer,
unless another one waits: then the worker is ended in the middle; a result goes to the pool only by
rank 0. A worker that dies is the machine's fault the first time, and the shard's when the same
shard ends it again.
"""

import hashlib
import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from infra.pool.agent.errors import WorkerDied
from infra.pool.agent.launch import Launch
from infra.pool.agent.uploads import read_below, upload
from infra.pool.agent.worker import Worker, files_of
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError, PoolUnreachable
from infra.pool.wire import ShardFailure, ShardResult, ShardWork

log = logging.getLogger("tracemill.agent")

T = TypeVar("T")

MAX_REASON = 2000
START_ATTEMPTS = 3
FIRST_PAUSE = 1.0
"""Seconds between two attempts; doubles."""
JOIN_SECONDS = 5.0


@dataclass(frozen=True)
class Place:
    """Where the node stands: a version of a group, and its rank."""

    group_id: str
    """Empty: it only stands by."""
    version: int
    index: int
    task_id: str


@dataclass(frozen=True)
class Lease:
    """What the group holds; two leases on one shard differ in their time."""

    shard_id: str
    leased_at: float


class ShardRunner:
    """The work of one place in one group."""

    def __init__(
        self,
        client: PoolClient,
        place: Place,
        launch: Launch,
        changed: Callable[[], None],
    ):
        """`changed` is called when the pool should hear of something."""
        self.place = place
        self.ready = False
        self.broken = ""
        """Why the worker does not start."""
        self.progress = 0.0
        self._client, self._launch, self._changed = client, launch, changed
        self._deaths: Counter[str] = Counter()
        self._condition = threading.Condition()
        self._wanted: Lease | None = None
        self._done: Lease | None = None
        self._ended = False
        self._asking = False
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def move(self, place: Place) -> None:
        """Another place with the same worker; a lease at the old one is lost."""
        self.place = place

    @property
    def shard_id(self) -> str:
        """The shard that is being worked on, or that is next; its lease is to be kept."""
        with self._condition:
            lease = self._wanted if self._wanted != self._done else None
        return lease.shard_id if lease else ""

    def assign(self, lease: Lease | None) -> None:
        """What the group holds now."""
        with self._condition:
            if lease == self._wanted:
                return
            self._wanted = lease
            worker = self._worker if self._asking and lease is not None else None
            self._condition.notify()
        if worker is not None:
            worker.stop(0)

    def logs(self, most: int) -> str:
        """The end of what the worker wrote."""
        worker = self._worker
        return worker.last_words(most) if worker else ""

    def close(self) -> None:
        """End the worker, whatever it does, and wait for the thread."""
        with self._condition:
            self._ended = True
            worker = self._worker
            self._condition.notify()
        if worker is not None:
            worker.stop(0)
        # It may be waiting for a service that does not answer.
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        try:
            while self._have_worker() and (lease := self._next()) is not None:
                # One that died while it had nothing to do is no shard's failure.
                if not self._have_worker():
                    break
                self._one(lease)
        except OSError as error:
            self.broken = f"{error}. It is this machine's fault: is its disk full?"
            self._changed()
        if self._worker is not None:
            self._worker.stop(0)

    def _have_worker(self) -> bool:
        """A running worker that has said who it is; False when there is none to be had."""
        for attempt in range(START_ATTEMPTS):
            if self._worker is not None and self._worker.alive:
                return True
            self._drop_worker()
            with self._condition:
                if attempt:
                    self._condition.wait_for(lambda: self._ended, FIRST_PAUSE * 2 ** (attempt - 1))
                if self._ended:
                    return False
                worker = self._worker = self._launch.worker()
            try:
                worker.meet()
            except WorkerDied as error:
                why = str(error)
                self._drop_worker()
                continue
            if not self.ready:
                self.ready = True
                self._changed()
            return True
        self.broken = why
        self._changed()
        return False

    def _next(self) -> Lease | None:
        with self._condition:
            while not self._ended and (self._wanted is None or self._wanted == self._done):
                self._condition.wait()
            self.progress = 0.0
            return None if self._ended else self._wanted

    def _one(self, lease: Lease) -> None:
        out, inside = self._launch.out()
        try:
            said = self._answer(lease, out, inside)
            if said is not None and self.place.index == 0:
                self._insist(lease, lambda: self._report(lease, said, out))
        except PoolError as error:
            # The lease is another's by now; or it ends, because it is not kept any more.
            log.warning("%s", error)
        finally:
            shutil.rmtree(out, ignore_errors=True)
        with self._condition:
            self._done = lease

    def _insist(self, lease: Lease, ask: Callable[[], T]) -> T | None:
        """Ask as long as the lease is ours, whatever becomes of the service in the meantime."""
        while self._wanted == lease and not self._ended:
            try:
                return ask()
            except PoolUnreachable as error:
                log.warning("%s", error)
        return None

    def _answer(self, lease: Lease, out: Path, inside: str) -> "_Answer | ShardFailure | None":
        group_id = self.place.group_id
        path = f"/shards/{lease.shard_id}"
        work = self._insist(lease, lambda: self._client.call("GET", path, answer=ShardWork))
        if work is None:
            return None
        try:
            answer = self._ask(lease, work.payload | {"job_id": lease.shard_id, "out": inside})
            if answer is None:
                return None
            if "error" in answer:
                return ShardFailure(
                    group_id=group_id, cause="user", kind=str(answer.get("error_kind"))[:200],
                    reason=str(answer["error"])[:MAX_REASON],
                )  # fmt: skip
            return _checked(answer, out)
        except WorkerDied as error:
            # Its process may still be ending, and would pass for a worker that is free.
            self._drop_worker()
            if self._wanted != lease or self._ended:
                return None
            self._deaths[lease.shard_id] += 1
            again = self._deaths[lease.shard_id] > 1
            return ShardFailure(
                group_id=group_id, cause="user" if again else "infra", kind="WorkerDied",
                reason=str(error)[:MAX_REASON],
            )  # fmt: skip

    def _ask(self, lease: Lease, work: dict[str, Any]) -> dict[str, Any] | None:
        """What the worker answers; None when the lease was taken back before it was asked."""
        with self._condition:
            worker = self._worker
            if worker is None or self._ended or self._wanted != lease:
                return None
            self._asking = True
        try:
            return worker.ask(work, self._note)
        finally:
            with self._condition:
                self._asking = False

    def _note(self, share: float) -> None:
        self.progress = share

    def _report(self, lease: Lease, said: "_Answer | ShardFailure", out: Path) -> None:
        path = f"/shards/{lease.shard_id}"
        if isinstance(said, ShardFailure):
            self._client.call("POST", f"{path}/failure", said)
            return
        # The same lease gives the same name: a second try finds its file there.
        prefix = hashlib.sha256(repr(lease).encode()).hexdigest()[:8]
        files = []
        for file in said.files:
            try:
                data = read_below(out, file.name)
            except (OSError, ValueError) as error:
                self._client.call("POST", f"{path}/failure", ShardFailure(
                    group_id=self.place.group_id, cause="infra", kind="WorkerDied",
                    reason=f"its file {file.name[:100]!r} cannot be read: {error}"[:MAX_REASON],
                ))  # fmt: skip
                return
            name = f"{prefix}-{file.name}"
            files.append(upload(self._client, data, name, self.place.task_id, lease.shard_id))
        result = ShardResult(
            group_id=self.place.group_id, output=said.output, files=files, seconds=said.seconds
        )
        self._client.call("POST", f"{path}/result", result)

    def _drop_worker(self) -> None:
        with self._condition:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(0)


@dataclass(frozen=True)
class _Answer:
    """What the worker made."""

    output: dict[str, Any]
    seconds: float
    files: list[Path]


def _checked(answer: dict[str, Any], out: Path) -> _Answer:
    output, seconds = answer.get("output"), answer.get("seconds")
    if not isinstance(output, dict) or not isinstance(seconds, float | int):
        raise WorkerDied(f"it answered {str(answer)[:80]!r}, without output and seconds")
    try:
        ShardResult(group_id="any", output=output, seconds=seconds)
    except ValidationError as error:
        raise WorkerDied(f"it answered what cannot be handed in: {error}"[:500]) from error
    return _Answer(output, float(seconds), files_of(answer, out))
