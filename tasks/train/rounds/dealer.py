"""Gives jobs to the pool and brings back what was accepted.

Invariants: a job that was given out ends accepted exactly once, or JobGivenUp; the job of a refused
upload goes out again, and that does not count, so that hostile nodes end no run (the pool lets each
do it a few times only); a job that is waited for too long goes to a second node too, and the first
good answer counts; uploads are read and checked in threads of the pool, those of one job one after
the other; an upload that nobody waits for any more is thrown away unread.
"""

import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from infra.pool import Job, JobResult, NodePool
from infra.pool.errors import PoolClosed, PoolError
from tasks.train.rollouts.errors import CheckCrashed, RolloutsRefused
from tasks.train.rollouts.job import RolloutJob, is_held_out
from tasks.train.rounds.errors import JobGivenUp, NotWanted

ToJob = Callable[[RolloutJob, int], Job]
"""(what is asked, attempt from 0) -> the job for the pool."""
LATE = 4.0
"""A job is late that takes this many times as long as others did."""

Ingest = Callable[[RolloutJob, JobResult], object]
"""Check and commit an upload; raises RolloutsRefused."""


@dataclass
class _Dealt:
    asked: RolloutJob
    priority: int
    since: float = 0.0
    """When it was given out last."""
    attempts: int = 0
    failures: int = 0
    running: set[Future[JobResult]] = field(default_factory=set)
    reading: set[int] = field(default_factory=set)
    """Attempts whose uploads are being checked, or wait for it."""
    one: threading.Lock = field(default_factory=threading.Lock)
    """Held while an upload is read."""
    taken: bool = False
    """An upload was accepted; threads of the pool see this before the dealer does."""
    settled: bool = False


@dataclass
class Tally:
    """What became of jobs."""

    accepted: int = 0
    refused: int = 0
    """Uploads, also such as could not be checked."""
    lost: int = 0
    """With their nodes, or given up by the pool."""
    backups: int = 0
    """Second nodes for jobs that were waited for."""
    node_seconds: float = 0.0
    """Of nodes for what was accepted."""


class Dealer:
    """Deals jobs; `settled` hands out those that are accepted, in order of arrival."""

    def __init__(
        self,
        pool: NodePool,
        to_job: ToJob,
        ingest: Ingest,
        throw_away: Callable[[JobResult], None],
        tries: int,
        backup_seconds: float,
    ) -> None:
        self._pool = pool
        self._to_job = to_job
        self._ingest = ingest
        self._throw_away = throw_away
        self._tries = tries
        self._backup_seconds = self._patience = backup_seconds
        self._dealt: dict[str, _Dealt] = {}
        self._events: queue.SimpleQueue[Callable[[], RolloutJob | None]] = queue.SimpleQueue()
        self._state = threading.Condition()
        self._closed = False
        self._at_work = 0
        """Uploads that are being read."""
        self._tally = Tally()
        self._taken: deque[float] = deque(maxlen=64)
        """Seconds from giving a job out to its answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._state:
            self._closed = True
            # What is being checked needs what is closed after this.
            self._state.wait_for(lambda: self._at_work == 0)

    @property
    def idle(self) -> bool:
        """Whether nothing is given out."""
        return not self._dealt

    def deal(self, asked: RolloutJob, priority: int) -> None:
        """Give a job out; jobs with a lower priority number go first."""
        dealt = self._dealt[asked.name] = _Dealt(asked, priority)
        self._give(dealt)

    def drop(self, step: int) -> None:
        """Forget rollouts of a step that has its batch; jobs not begun are not done."""
        for name, dealt in list(self._dealt.items()):
            if dealt.asked.step == step and not is_held_out(dealt.asked):
                _settle(dealt)
                del self._dealt[name]

    def settled(self, timeout: float) -> list[RolloutJob]:
        """Jobs that were accepted since the last call; waits at most `timeout` seconds for one."""
        found: list[RolloutJob] = []
        while True:
            try:
                event = self._events.get(timeout=0.0 if found else timeout)
            except queue.Empty:
                break
            accepted = event()
            if accepted is not None:
                found.append(accepted)
            timeout = 0.0
        self._back_up()
        return found

    def tally(self) -> Tally:
        """What became of jobs since the last call."""
        found, self._tally = self._tally, Tally()
        return found

    def _give(self, dealt: _Dealt) -> None:
        job = self._to_job(dealt.asked, dealt.attempts)
        dealt.attempts += 1
        dealt.since = time.monotonic()
        attempt = dealt.attempts - 1
        future = self._pool.submit(
            replace(job, priority=dealt.priority), lambda result: self._read(dealt, attempt, result)
        )
        dealt.running.add(future)
        future.add_done_callback(lambda done: self._events.put(lambda: self._answered(dealt, done)))

    def _read(self, dealt: _Dealt, attempt: int, result: JobResult) -> None:
        """Take an upload in, in a thread of the pool."""
        dealt.reading.add(attempt)
        with self._state:
            self._at_work += 1
        try:
            with dealt.one:
                if self._closed or dealt.settled or dealt.taken:
                    self._throw_away(result)
                    raise NotWanted(result.job_id)
                self._ingest(dealt.asked, result)
                dealt.taken = True
        finally:
            dealt.reading.discard(attempt)
            with self._state:
                self._at_work -= 1
                self._state.notify_all()

    def _answered(self, dealt: _Dealt, future: Future[JobResult]) -> RolloutJob | None:
        dealt.running.discard(future)
        if dealt.settled:
            return None
        try:
            result = future.result()
        except PoolClosed:
            raise
        except NotWanted:
            return None
        except RolloutsRefused:
            self._tally.refused += 1
            self._again(dealt)
            return None
        except CheckCrashed as crash:
            self._tally.refused += 1
            self._failed(dealt, str(crash))
            return None
        except (PoolError, CancelledError) as error:
            self._tally.lost += 1
            self._failed(dealt, str(error))
            return None
        _settle(dealt)
        self._taken.append(time.monotonic() - dealt.since)
        self._patience = max(self._backup_seconds, LATE * statistics.median(self._taken))
        self._tally.accepted += 1
        self._tally.node_seconds += result.seconds
        self._dealt.pop(dealt.asked.name, None)
        return dealt.asked

    def _failed(self, dealt: _Dealt, why: str) -> None:
        dealt.failures += 1
        if dealt.failures >= self._tries:
            raise JobGivenUp(dealt.asked.name, dealt.failures, why)
        self._again(dealt)

    def _again(self, dealt: _Dealt) -> None:
        if not dealt.running:
            self._give(dealt)

    def _back_up(self) -> None:
        now = time.monotonic()
        for dealt in list(self._dealt.values()):
            waiting = len(dealt.running) == 1 and not dealt.reading
            if waiting and now - dealt.since > self._patience:
                self._tally.backups += 1
                self._give(dealt)


def _settle(dealt: _Dealt) -> None:
    """Nothing more is wanted of a job; what nobody has begun is not done."""
    dealt.settled = True
    for future in tuple(dealt.running):
        future.cancel()
