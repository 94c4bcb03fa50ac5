"""`score`: one row, never hanging.

Cheap rows are judged here; kinds with deadlines of their own (the sandboxed ones) too;
all others go to a warm worker process that is killed when the row's time is up.
"""

import select
import time
from typing import Any

from verifiers.errors import UnknownTaskType, WorkerLost
from verifiers.kinds.base import Kind
from verifiers.pool import Job, Slot, after_death, give_back, lease
from verifiers.registry import as_score, finish, kind_of, prepare, unknown_score
from verifiers.result import Outcome, Score, verifier_error


def _in_worker(job: Job) -> Score:
    slot = lease()
    try:
        while True:
            try:
                slot.submit(job)
                score, outcome = _await(slot)
            except (BrokenPipeError, ConnectionResetError):
                score, outcome = None, None
            if score is not None:
                return score
            started = slot.stop_clock()
            slot.stop()
            outcome = outcome or after_death(job)
            if outcome is not None:
                return job.score(outcome, started)
    finally:
        give_back(slot)


def _await(slot: Slot) -> tuple[Score | None, Outcome | None]:
    """The score of the row that the slot holds, or the outcome of the clock; neither: it died."""
    while True:
        assert slot.handle is not None
        readable, _, _ = select.select([slot.handle.sock], [], [], slot.seconds_left())
        if readable:
            arrived = slot.read()
            if arrived is None:
                return None, None
            if arrived:
                return arrived[0][1], None
        if (outcome := slot.overdue()) is not None:
            return None, outcome


def _quick(kind: Kind, answer: str, info: Any) -> bool:
    try:
        return kind.self_limiting or kind.quick(answer, info)
    except Exception:  # an odd row is no reason to fail here; the worker finds its fault
        return False


def score(
    task_type: str, completion: str, verification_info: Any, *, require_think: bool = False
) -> Score:
    """Judge one completion; returns within the kind's limits whatever the texts hold."""
    started = time.perf_counter()
    try:
        kind = kind_of(task_type)
    except UnknownTaskType as error:
        return unknown_score(error)
    prepared = prepare(completion, verification_info, require_think)
    if isinstance(prepared, Outcome):
        outcome = prepared
    elif _quick(kind, prepared.answer, prepared.info):
        outcome = finish(kind, prepared)
    else:
        row = {
            "task_type": task_type,
            "completion": completion,
            "verification_info": verification_info,
        }
        job = Job(0, row, require_think)
        try:
            return job.refusal or _in_worker(job)
        except WorkerLost as error:
            outcome = verifier_error(str(error))
    return as_score(kind, outcome, time.perf_counter() - started, require_think)
