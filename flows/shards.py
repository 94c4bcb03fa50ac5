"""Run shard stages as Prefect tasks: each shard goes on by itself, none waits for a whole stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from flows.runs import Run
from flows.session import PHASES, Session, committed
from infra.storage import discard
from tasks.generate.plan import Shard
from tasks.generate.stage import read_plan
from tasks.generate.task import generate
from tasks.validate.revoke import revoke, to_revoke
from tasks.validate.task import validate
from tasks.verify.task import verify

Future: TypeAlias = PrefectFuture[Any]

REVOKED = "it had been accepted without an audit, and an audit of its node failed later"

STAGES = ("generate", "validate", "verify")

MAX_THREADS = 48
"""Threads of a flow's task runner, and by that the shards in flight (three tasks each). Tasks are
submitted shard by shard, so a waiting task never keeps the one that it waits for from a thread."""

RUNNER: Any = ThreadPoolTaskRunner(max_workers=MAX_THREADS)


@dataclass(frozen=True)
class Missing:
    """A shard that a stage did not commit, and why."""

    stage: str
    model: str
    shard_id: str
    why: str


def run_shards(
    session: Session, phase: str, shards: Sequence[Shard], stages: Sequence[str] = STAGES
) -> list[Missing]:
    """Take shards through the stages; what is committed is skipped, what fails is returned.

    Where an audit of a node fails, its unaudited shards are revoked; those of `shards` go again.
    """
    missing = _once(session, phase, shards, stages)
    while "validate" in stages and (revoked := revoke_unaudited(session.run)):
        if "generate" not in stages:
            return missing + [Missing("generate", s.model, s.shard_id, REVOKED) for s in revoked]
        again = [shard for shard in shards if shard in revoked]
        missing = [lost for lost in missing if lost.shard_id not in {s.shard_id for s in again}]
        missing += _once(session, phase, again, stages)
    return missing


def revoke_unaudited(run: Run) -> list[Shard]:
    """Revoke the unaudited shards of nodes that failed an audit, in both phases; returns them.

    Difficulty follows from the annotators' shards and the teacher's plan from it: they go first.
    """
    plans = {phase: read_plan(run.store, run.layout, phase) for phase in PHASES}
    found = to_revoke(run.store, run.layout, [shard for plan in plans.values() for shard in plan])
    if any(shard in found for shard in plans["annotators"]):
        discard(run.store, run.layout.difficulty)
        discard(run.store, run.layout.plan("teacher"))
    for shard in found:
        get_run_logger().warning("shard %s is revoked: %s", shard.shard_id, REVOKED)
        revoke(run.store, run.layout, shard)
    return found


def _once(
    session: Session, phase: str, shards: Sequence[Shard], stages: Sequence[str]
) -> list[Missing]:
    run = session.run
    futures: list[tuple[str, Shard, Future]] = []
    for shard in shards:
        before: list[Future] = []
        for stage in stages:
            if committed(run, stage, shard):
                continue
            name = (shard.model, shard.shard_id)
            # return_state is spelled out for the type checker: the overload with wait_for needs it.
            if stage == "generate":
                future: Future = generate.submit(session.generators[phase], *name, shard)
            elif stage == "validate":
                future = validate.submit(
                    session.validator, *name, shard, wait_for=before, return_state=False
                )
            else:
                future = verify.submit(
                    session.scorer, *name, shard, wait_for=before, return_state=False
                )
            before = [future]
            futures.append((stage, shard, future))
    return [_missing(stage, shard, future) for stage, shard, future in _failed(run, futures)]


def _failed(
    run: Run, futures: Sequence[tuple[str, Shard, Future]]
) -> list[tuple[str, Shard, Future]]:
    failed = []
    for stage, shard, future in futures:
        future.wait()
        if not future.state.is_completed() and not committed(run, stage, shard):
            failed.append((stage, shard, future))
    return failed


def _missing(stage: str, shard: Shard, future: Future) -> Missing:
    why = (future.state.message or future.state.name or "unknown")[:500]
    get_run_logger().warning("%s of shard %s is missing: %s", stage, shard.shard_id, why)
    return Missing(stage, shard.model, shard.shard_id, why)


def run_stage(session: Session, stage: str) -> list[Missing]:
    """Take every planned shard of the run through one stage."""
    return [
        missing
        for phase in PHASES
        if (shards := read_plan(session.run.store, session.run.layout, phase))
        for missing in run_shards(session, phase, shards, (stage,))
    ]
