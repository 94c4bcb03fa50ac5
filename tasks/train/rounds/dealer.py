"""Gives jobs to the pool and brings back what was accepted.

Invariants: a job that was given out ends accepted exactly once, or JobGivenUp; the job of a refused
upload goes out again; a job that is waited for too long goes to a second node too, and the first
good answer counts; uploads are read and checked on a thread of their own, so that the next jobs are
dealt meanwhile.
"""

import queue
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from infra.pool import Job, JobResult, NodePool
from infra.pool.errors import PoolClosed, PoolError
from tasks.train.rollouts.errors import CheckCrashed, RolloutsRefused
from tasks.train.rollouts.job import RolloutJob
from tasks.train.rounds.errors import JobGivenUp
from tasks.train.rounds.plan import is_held_out

ToJob = Callable[[RolloutJob, int], Job]
"""(what is asked, attempt from 0) -> the job for the pool."""
Ingest = Callable[[RolloutJob, int, JobResult], object]
"""Check and commit an upload; raises RolloutsRefused. May be called for one job again."""


@dataclass
class _Dealt:
    asked: RolloutJob
    priority: int
    since: float = 0.0
    attempts: int = 0
    failures: int = 0
    running: set[Future[JobResult]] = field(default_factory=set)
    reading: int = 0
    """Its uploads that are being checked."""
    settled: bool = False


@dataclass
class Tally:
    """What became of jobs and nodes so far."""

    accepted: int = 0
    refused: int = 0
    lost: int = 0
    backups: int = 0
    node_seconds: float = 0.0


class Dealer:
    """Deals jobs; `settled` hands out those that are accepted, in order of arrival."""

    def __init__(
        self, pool: NodePool, to_job: ToJob, ingest: Ingest, tries: int, backup_seconds: float
    ) -> None:
        self._pool = pool
        self._to_job = to_job
        self._ingest = ingest
        self._tries = tries
        self._backup_seconds = backup_seconds
        self._dealt: dict[str, _Dealt] = {}
        self._events: queue.SimpleQueue[Callable[[], RolloutJob | None]] = queue.SimpleQueue()
        self._reader = ThreadPoolExecutor(1, "ingest")
        self.tally = Tally()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.shutdown(cancel_futures=True)

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

    def _give(self, dealt: _Dealt) -> None:
        job = self._to_job(dealt.asked, dealt.attempts)
        dealt.attempts += 1
        dealt.since = time.monotonic()
        attempt = dealt.attempts - 1
        future = self._pool.submit(replace(job, priority=dealt.priority))
        dealt.running.add(future)
        future.add_done_callback(
            lambda done: self._events.put(lambda: self._answered(dealt, attempt, done))
        )

    def _answered(
        self, dealt: _Dealt, attempt: int, future: Future[JobResult]
    ) -> RolloutJob | None:
        dealt.running.discard(future)
        if dealt.settled:
            return None
        try:
            result = future.result()
        except PoolClosed:
            raise
        except (PoolError, CancelledError) as error:
            self.tally.lost += 1
            self._again(dealt, str(error))
            return None
        self.tally.node_seconds += result.seconds
        dealt.reading += 1
        read = self._reader.submit(self._ingest, dealt.asked, attempt, result)
        read.add_done_callback(lambda done: self._events.put(lambda: self._ingested(dealt, done)))
        return None

    def _ingested(self, dealt: _Dealt, future: Future[object]) -> RolloutJob | None:
        dealt.reading -= 1
        if dealt.settled:
            return None
        try:
            future.result()
        except (RolloutsRefused, CheckCrashed) as refusal:
            self.tally.refused += 1
            self._again(dealt, str(refusal))
            return None
        _settle(dealt)
        self.tally.accepted += 1
        self._dealt.pop(dealt.asked.name, None)
        return dealt.asked

    def _again(self, dealt: _Dealt, why: str) -> None:
        dealt.failures += 1
        if dealt.failures >= self._tries:
            raise JobGivenUp(dealt.asked.name, dealt.failures, why)
        if not dealt.running:
            self._give(dealt)

    def _back_up(self) -> None:
        now = time.monotonic()
        for dealt in list(self._dealt.values()):
            waiting = len(dealt.running) == 1 and not dealt.reading
            if waiting and now - dealt.since > self._backup_seconds:
                self.tally.backups += 1
                self._give(dealt)


def _settle(dealt: _Dealt) -> None:
    """Nothing more is wanted of a job; what nobody has begun is not done."""
    dealt.settled = True
    for future in tuple(dealt.running):
        future.cancel()
