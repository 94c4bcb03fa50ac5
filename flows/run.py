"""Flow `run`: tasks to published splits, end to end.

Deployed as `run/local` (triggered from the UI's form) and started by `tracemill run`; on a laptop
also `python flows/run.py`. Needs no server, account or network. The storage credentials, if any,
come from the environment. A run that is started again with its id does only what is not committed.
"""

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger

from flows.annotate import annotate
from flows.artifacts import publish_artifacts, write_results
from flows.collect import DEFAULT, collect
from flows.config import RunConfig
from flows.outcome import outcome
from flows.publish import publish_results
from flows.runs import Run, new_run_id, open_run
from flows.session import Session, session
from flows.shards import RUNNER, Missing, run_shards
from infra.storage import read_manifest, read_table
from tasks.annotate.select import select_for_teacher
from tasks.generate.plan import PlanTask, plan_tasks
from tasks.generate.stage import commit_plan, read_plan


@flow(
    name="run",
    flow_run_name="run {run_id}",
    task_runner=RUNNER,
)
def run(config: RunConfig = DEFAULT, run_id: str = "") -> State[Any]:
    """Collect tasks, answer them, prove, verify and annotate the answers, publish the splits.

    Args:
        config: everything that decides what the run does; the form starts with profile `local`.
        run_id: the run; empty names a new one after the time. An id that exists resumes that run.
    """
    run_id = run_id or new_run_id()
    collect(config, run_id)
    opened = open_run(config, run_id)
    with session(opened) as shared:
        missing = answer_tasks(shared)
    if read_manifest(opened.store, opened.layout.difficulty) is None:
        publish_artifacts(opened, write_results(opened))
        return outcome(opened, missing)
    published = publish_results(opened)
    rows = ", ".join(f"{name} {count}" for name, count in published["rows"].items())
    message = f"published {published['uri']}: {rows}"
    get_run_logger().info(message)
    return outcome(opened, missing, message)


def answer_tasks(shared: Session) -> list[Missing]:
    """Both phases of a collected run: the annotators, the difficulty, then the teacher.

    Difficulty is committed once and decides the teacher's tasks, so it waits until no annotator's
    shard is missing: made of a part, it would stay that of a part after the run is resumed.
    """
    opened = shared.run
    tasks = plan_tasks(read_table(opened.store, opened.layout.tasks))
    while True:
        missing = _phase(shared, "annotators", tasks)
        if missing:
            return missing
        annotate(opened.run_id, opened.store.root)
        chosen = _for_teacher(opened, tasks)
        if not chosen:
            break
        missing = _phase(shared, "teacher", chosen)
        # A node that is caught only now may have made annotators' shards too; then difficulty is
        # discarded, and what follows from it is done again.
        if read_manifest(opened.store, opened.layout.difficulty) is not None:
            return missing
    get_run_logger().warning(
        "no task is hard enough for the teacher, so the sft splits stay empty: "
        "raise sft.max_pass_rate or set sft.select to all"
    )
    return []


def _phase(shared: Session, phase: str, tasks: list[PlanTask]) -> list[Missing]:
    opened = shared.run
    commit_plan(
        opened.store,
        opened.layout,
        phase,
        tasks,
        opened.config.uses(phase),
        opened.config.seed,
        opened.config.first_index(phase),
    )
    return run_shards(shared, phase, read_plan(opened.store, opened.layout, phase))


def _for_teacher(opened: Run, tasks: list[PlanTask]) -> list[PlanTask]:
    chosen = set(
        select_for_teacher(
            read_table(opened.store, opened.layout.tasks),
            read_table(opened.store, opened.layout.difficulty),
            opened.config.sft,
        )
    )
    return [task for task in tasks if task.task_id in chosen]


if __name__ == "__main__":
    run()
