"""Works on the shards that the node's group has leases on, one at a time, in a thread of its own.

Invariants: there is one worker, started for one task and one version of the group; a shard is asked
for once for each lease; a lease that was taken back ends the worker in the middle, because nobody
waits for its answer; a result goes to the pool only by rank 0. A worker that dies is the machine's
fault the first time, and the shard's when the same shard ends it again.
"""

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.pool.agent.errors import WorkerDied
from infra.pool.agent.uploads import upload_files
from infra.pool.agent.worker import Worker, files_of
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError
from infra.pool.wire import ShardFailure, ShardResult, ShardWork

MAX_REASON = 2000
START_ATTEMPTS = 3


@dataclass(frozen=True)
class Place:
    """Where the node stands: a version of a group, and its rank."""

    group_id: str
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
        start: Callable[[], Worker],
        changed: Callable[[], None],
    ):
        """`start` makes the worker; `changed` is called when the pool should hear of something."""
        self.place = place
        self.ready = False
        self.progress = 0.0
        self._client, self._start, self._changed = client, start, changed
        self._deaths: Counter[str] = Counter()
        self._condition = threading.Condition()
        self._wanted: Lease | None = None
        self._current: Lease | None = None
        self._done: Lease | None = None
        self._ended = False
        self._asking = False
        self._worker: Worker | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="tracemill-shards-"))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def shard_id(self) -> str:
        """The shard that is being worked on."""
        current = self._current
        return current.shard_id if current else ""

    def assign(self, lease: Lease | None) -> None:
        """What the group holds now."""
        with self._condition:
            if lease == self._wanted:
                return
            self._wanted = lease
            worker = self._worker if self._asking else None
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
        self._thread.join()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self) -> None:
        while self._have_worker():
            lease = self._next()
            if lease is None:
                break
            self._one(lease)
        if self._worker is not None:
            self._worker.stop(0)

    def _have_worker(self) -> bool:
        """A running worker that has said who it is; False when there is none to be had."""
        for _ in range(START_ATTEMPTS):
            if self._worker is not None and self._worker.alive:
                return True
            self._drop_worker()
            with self._condition:
                if self._ended:
                    return False
                worker = self._worker = self._start()
            try:
                worker.meet()
            except WorkerDied as error:
                why = str(error)
                self._drop_worker()
                continue
            if not self.ready:
                self.ready = True
                self._changed()
        return self._give_up(why)

    def _give_up(self, why: str) -> bool:
        lease = self._next()
        if lease is not None:
            self._report(lease, ShardFailure(
                group_id=self.place.group_id, cause="infra", kind="WorkerDied",
                reason=f"it does not start: {why}"[:MAX_REASON],
            ))  # fmt: skip
        return False

    def _next(self) -> Lease | None:
        with self._condition:
            while not self._ended and (self._wanted is None or self._wanted == self._done):
                self._condition.wait()
            self._current, self.progress = self._wanted, 0.0
            return None if self._ended else self._wanted

    def _one(self, lease: Lease) -> None:
        out = self._directory / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        try:
            said = self._answer(lease, out)
            if said is not None and self.place.index == 0:
                self._report(lease, said)
        except PoolError:
            # The pool does not want it any more, or does not answer: it knows what to do.
            pass
        with self._condition:
            self._done, self._current = lease, None

    def _answer(self, lease: Lease, out: Path) -> ShardResult | ShardFailure | None:
        group_id = self.place.group_id
        work = self._client.call("GET", f"/shards/{lease.shard_id}", answer=ShardWork)
        try:
            answer = self._ask(lease, work.payload | {"job_id": lease.shard_id, "out": str(out)})
            if "error" in answer:
                return ShardFailure(
                    group_id=group_id, cause="user", kind=str(answer.get("error_kind"))[:200],
                    reason=str(answer["error"])[:MAX_REASON],
                )  # fmt: skip
            files = files_of(answer, out)
            output, seconds = _checked(answer)
        except WorkerDied as error:
            if self._wanted != lease or self._ended:
                return None
            self._drop_worker()
            self._deaths[lease.shard_id] += 1
            again = self._deaths[lease.shard_id] > 1
            return ShardFailure(
                group_id=group_id, cause="user" if again else "infra", kind="WorkerDied",
                reason=str(error)[:MAX_REASON],
            )  # fmt: skip
        stored = upload_files(self._client, files, self.place.task_id, lease.shard_id)
        return ShardResult(group_id=group_id, output=output, files=stored, seconds=seconds)

    def _ask(self, lease: Lease, work: dict[str, Any]) -> dict[str, Any]:
        with self._condition:
            worker = self._worker
            if worker is None or self._ended or self._wanted != lease:
                raise WorkerDied("the lease was taken back")
            self._asking = True
        try:
            return worker.ask(work, self._note)
        finally:
            with self._condition:
                self._asking = False

    def _note(self, share: float) -> None:
        self.progress = share

    def _report(self, lease: Lease, said: ShardResult | ShardFailure) -> None:
        what = "result" if isinstance(said, ShardResult) else "failure"
        self._client.call("POST", f"/shards/{lease.shard_id}/{what}", said)

    def _drop_worker(self) -> None:
        with self._condition:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(0)


def _checked(answer: dict[str, Any]) -> tuple[dict[str, Any], float]:
    output, seconds = answer.get("output"), answer.get("seconds")
    if not isinstance(output, dict) or not isinstance(seconds, float | int):
        raise WorkerDied(f"it answered {str(answer)[:80]!r}, without output and seconds")
    return output, float(seconds)
