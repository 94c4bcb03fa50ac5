"""Judging rows in killable processes: `score_many`, and the single rows of `score`.

Invariants: results come in the order of the rows; a row that hangs or kills its worker
costs its own limit and one fork, the rows behind it go to the next worker; nothing of a
row outlives its worker. Time limits count CPU time, so a busy machine does not fail rows.
"""

import contextlib
import itertools
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from verifiers import progress, wire
from verifiers.errors import UnknownTaskType, WorkerLost
from verifiers.host import WorkerHandle, spawn
from verifiers.registry import as_score, kind_of, unknown_score
from verifiers.result import Outcome, Score, timed_out, unverifiable, verifier_error

RECYCLE_AFTER = 1000
WINDOW = 4096
_PREFETCH_ROWS = 16
_PREFETCH_BYTES = 64_000
_SILENCE_LIMIT = 180.0
"""Seconds without a word from a kind that keeps its own deadlines."""
_MAX_IDLE = os.cpu_count() or 1
_STARVED_FACTOR = 25
"""A row may take this many times its limit of wall time while it gets no CPU."""


class Job:
    """A row on its way: the frame to send, and how often it was tried."""

    def __init__(self, index: int, row: Mapping[str, Any], require_think: bool):
        self.index = index
        self.attempts = 0
        self.require_think = require_think
        self.refusal: Score | None = None
        self.frame = b""
        task_type = row.get("task_type")
        try:
            self.kind = kind_of(task_type)
        except UnknownTaskType as error:
            self.refusal = unknown_score(error)
            return
        self.phase = progress.TRUTH if self.kind.reports_phase else progress.ANSWER
        message = [task_type, row.get("completion"), row.get("verification_info"), require_think]
        try:
            self.frame = wire.encode(message)
        except (TypeError, ValueError, RecursionError) as error:
            self.refusal = self.score(unverifiable(f"the row is not JSON: {error}"), 0.0)

    def score(self, outcome: Outcome, seconds: float) -> Score:
        """The Score of an outcome found outside of the worker."""
        return as_score(self.kind, outcome, seconds, self.require_think)


class Slot:
    """One worker process and the rows it holds; the first one is being judged."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.handle: WorkerHandle | None = None
        self.done = 0
        self._since = 0.0
        self._cpu = 0.0
        self._reader = wire.FrameReader()

    def has_room(self, job: Job) -> bool:
        """True when sending the row cannot block: the worker is idle, or the row is small."""
        if not self.jobs:
            return True
        size = sum(len(held.frame) for held in self.jobs) + len(job.frame)
        return len(self.jobs) < _PREFETCH_ROWS and size < _PREFETCH_BYTES

    def submit(self, job: Job) -> None:
        """Send a row; starts a worker when there is none."""
        handle = self.start()
        self.jobs.append(job)
        if len(self.jobs) == 1:
            self._start_clock()
        handle.sock.sendall(job.frame)

    def start(self) -> WorkerHandle:
        """The worker, which is started when there is none."""
        if self.handle is None:
            self.handle, self.done, self._reader = spawn(), 0, wire.FrameReader()
        return self.handle

    def read(self) -> list[tuple[Job, Score]] | None:
        """Results that arrived; None when the worker is gone."""
        assert self.handle is not None
        try:
            data = self.handle.sock.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        results = []
        messages = self._reader.feed(data)
        for message in messages:
            if "phase" in message:
                self.jobs[0].phase = message["phase"]
            else:
                results.append((self.jobs.popleft(), Score(**message["score"])))
                self.done += 1
        if messages:
            self._start_clock()
        return results

    def _start_clock(self) -> None:
        self._since = time.monotonic()
        self._cpu = self.handle.cpu_seconds() if self.handle else 0.0

    def stop_clock(self) -> float:
        """Seconds that the present row has taken."""
        return time.monotonic() - self._since

    def seconds_left(self) -> float | None:
        """Time until the next look at the clock; None when idle."""
        if not self.jobs:
            return None
        limit = _SILENCE_LIMIT if self.jobs[0].kind.self_limiting else self.jobs[0].kind.time_limit
        spent = time.monotonic() - self._since
        return limit - spent if spent < limit else 0.2

    def overdue(self) -> Outcome | None:
        """The outcome of the present row when its time is up."""
        if not self.jobs or self.handle is None:
            return None
        job, wall = self.jobs[0], time.monotonic() - self._since
        if job.kind.self_limiting:
            silent = wall >= _SILENCE_LIMIT
            return verifier_error(f"no progress for {wall:.0f} s") if silent else None
        limit = job.kind.time_limit
        if wall < limit:
            return None
        used = self.handle.cpu_seconds() - self._cpu
        if used >= 0.9 * limit:
            return blame(job, f"took more than {limit:g} s")
        if wall >= _STARVED_FACTOR * limit:
            return verifier_error(
                f"got {used:.1f} s of CPU in {wall:.0f} s: the machine is too busy"
            )
        return None

    def stop(self) -> list[Job]:
        """Kill the worker; return the rows it held."""
        if self.handle is not None:
            self.handle.kill()
            self.handle = None
        jobs = list(self.jobs)
        self.jobs.clear()
        return jobs


_idle: list[Slot] = []
_leased: set[Slot] = set()
"""Held here too: an iterator that the garbage collector ends would give back slots whose sockets
the collector has closed already."""
_owner = os.getpid()
_lock = threading.RLock()
"""Reentrant: the collector may end an iterator, which gives back its slots, at any moment."""


def lease() -> Slot:
    """A slot with a warm worker, and warm sandboxes in it, where one is idle."""
    global _owner
    with _lock:
        if _owner != os.getpid():  # the workers belong to the process we were forked from
            _idle.clear()
            _leased.clear()
            _owner = os.getpid()
        slot = _idle.pop() if _idle else Slot()
        _leased.add(slot)
        return slot


def give_back(slot: Slot) -> None:
    """Keep the worker of a slot that holds no rows, unless it has done its share."""
    if slot.jobs or slot.done >= RECYCLE_AFTER:
        slot.stop()
    with _lock:
        _leased.discard(slot)
        if slot.handle is not None and len(_idle) < _MAX_IDLE:
            _idle.append(slot)
            return
    slot.stop()


def blame(job: Job, what: str) -> Outcome:
    """A limit was passed: by the truth (the row's fault) or by the answer."""
    if job.phase == progress.TRUTH:
        return unverifiable(f"the truth {what}")
    return timed_out(f"judging the answer {what}")


def after_death(job: Job) -> Outcome | None:
    """A worker died on the row: once may be chance, twice is the row's doing."""
    job.attempts += 1
    if job.attempts < 2:
        return None
    if job.kind.self_limiting:  # what is hostile in such a row runs in the sandbox, not here
        return verifier_error("the verifier process died twice")
    return blame(job, "brought the verifier process down twice")


class _Run:
    """One pass of `score_many`."""

    def __init__(self, workers: int):
        self.slots = [lease() for _ in range(workers)]
        self.waiting: deque[Job] = deque()
        self.results: dict[int, Score] = {}
        self.selector = selectors.DefaultSelector()
        for slot in self.slots:
            if slot.handle is not None:
                self.selector.register(slot.handle.sock, selectors.EVENT_READ, slot)

    def dispatch(self) -> None:
        """Give waiting rows to the workers with room, the least loaded first."""
        while self.waiting:
            slot = min(self.slots, key=lambda s: len(s.jobs))
            job = self.waiting[0]
            if not slot.has_room(job):
                return
            self.waiting.popleft()
            fresh = slot.handle is None
            try:
                slot.submit(job)
            except (BrokenPipeError, ConnectionResetError):
                self.replace(slot)
                continue
            if fresh and slot.handle is not None:
                self.selector.register(slot.handle.sock, selectors.EVENT_READ, slot)

    def replace(self, slot: Slot, verdict: Outcome | None = None) -> None:
        """Kill a worker; its first row gets the verdict, the others go back to the front."""
        if slot.handle is not None:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(slot.handle.sock)
        seconds = slot.stop_clock()
        jobs = slot.stop()
        if jobs:
            outcome = verdict or after_death(jobs[0])
            if outcome is not None:
                job = jobs.pop(0)
                self.results[job.index] = job.score(outcome, seconds)
        self.waiting.extendleft(reversed(jobs))

    def wait(self) -> None:
        """Take in what arrived, then look at the clocks."""
        timeouts = [t for slot in self.slots if (t := slot.seconds_left()) is not None]
        for key, _ in self.selector.select(max(0.0, min(timeouts, default=0.0))):
            slot: Slot = key.data
            arrived = slot.read()
            if arrived is None:
                self.replace(slot)
                continue
            for job, score in arrived:
                self.results[job.index] = score
            if slot.done >= RECYCLE_AFTER and not slot.jobs:
                self.replace(slot)
        for slot in self.slots:
            if (outcome := slot.overdue()) is not None:
                self.replace(slot, outcome)

    def close(self) -> None:
        self.selector.close()
        for slot in self.slots:
            give_back(slot)


def start_worker() -> None:
    """Have a worker wait for rows: the first of a process takes seconds to start. WorkerLost."""
    slot = lease()
    try:
        slot.start()
    finally:
        give_back(slot)


def score_many(
    rows: Iterable[Mapping[str, Any]], workers: int | None = None, *, require_think: bool = False
) -> Iterator[Score]:
    """Judge rows in worker processes; the scores come in the order of the rows."""
    count = workers if workers is not None else (os.cpu_count() or 1)
    if count < 1:
        raise WorkerLost(f"workers must be at least 1, got {count}")
    run = _Run(count)
    jobs = (Job(i, row, require_think) for i, row in enumerate(rows))
    next_index = pending = 0
    try:
        while True:
            room = WINDOW - pending - len(run.results)
            for job in itertools.islice(
                jobs, max(0, min(room, 4 * _PREFETCH_ROWS * count - len(run.waiting)))
            ):
                if job.refusal is not None:
                    run.results[job.index] = job.refusal
                else:
                    run.waiting.append(job)
                pending += 1
            run.dispatch()
            while next_index in run.results:
                yield run.results.pop(next_index)
                next_index += 1
                pending -= 1
            if pending == 0:
                return
            if not any(slot.jobs for slot in run.slots) and run.waiting:
                continue
            run.wait()
    finally:
        run.close()
