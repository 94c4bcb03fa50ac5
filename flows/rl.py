"""Flow `rl-rounds`: rollouts in, verified, trained, weights out, again.

Deployed as `rl-rounds/local` and started by `tracemill rl`; on a laptop also `python flows/rl.py`.
Needs no server, account or network. Where no dataset is named, its tasks are published first by the
flow `run` with the profile that the config names. A run that is started again with its id goes on
where it stopped, also after kill -9 of the flow, the trainer or a node.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from logging import Logger, LoggerAdapter
from typing import Any, cast
from uuid import UUID

from prefect import flow
from prefect.artifacts import (
    create_image_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed

from flows.nodes import pool_of
from flows.profiles import load_config
from flows.rl_config import RlConfig
from flows.rl_runs import RlRun, dataset_of, open_rl, rounds_of
from flows.runs import new_run_id
from tasks.train.rounds.driver import Events
from tasks.train.rounds.evaluation import Evaluation
from tasks.train.rounds.report import (
    curve_data_uri,
    evaluation_table,
    metrics_table,
    read_evaluations,
    write_report,
)
from tasks.train.rounds.session import opened
from tasks.train.rounds.tasks import read_split

DEFAULT = load_config(RlConfig, "rl-local")
PROGRESS_SECONDS = 20.0
"""Between two figures of progress that Prefect's server is told."""


@flow(name="rl-rounds", flow_run_name="rl-rounds {run_id}")
def rl_rounds(config: RlConfig = DEFAULT, run_id: str = "") -> State[Any]:
    """Train a policy on rollouts that nodes make and our side checks.

    Args:
        config: everything that decides what is trained; the form starts with profile `rl-local`.
        run_id: the run; empty names a new one after the time. An id that exists resumes that run.
    """
    run = open_rl(config, run_id or new_run_id())
    choice = config.tasks.model_copy(update={"dataset": dataset_of(run)})
    rounds = rounds_of(config, read_split(choice))
    with (
        shown(run) as events,
        pool_of(config.provision, run.store, f"{run.layout.root}/pool") as pool,
        opened(rounds, run.store, run.layout, pool, events) as driver,
    ):
        driver.run()
    write_report(run.store, run.layout)
    return Completed(message=f"{run.run_id}: policy version {config.rounds.steps} is measured")


@contextmanager
def shown(run: RlRun) -> Iterator[Events]:
    """Progress and figures in the Prefect UI while the rounds go on, which do not wait for them."""
    steps = run.config.rounds.steps
    logger = get_run_logger()
    # In a synchronous flow it is no coroutine.
    progress = cast(UUID, create_progress_artifact(0.0, "rl-progress", "Rollout steps chosen"))

    told = time.monotonic()

    def stepped(made: dict[str, Any]) -> None:
        nonlocal told
        if made["step"] == steps or time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            showing.submit(copy_context().run, show_progress, 100.0 * made["step"] / steps)

    def show_progress(percent: float) -> None:
        with _shown_or_not(logger):
            update_progress_artifact(progress, percent)

    def evaluated(found: Evaluation) -> None:
        rates = ", ".join(f"{k} {r.sampled.mean:.3f}" for k, r in found.kinds.items())
        logger.info("version %d after %.0f s: %s", found.version, found.seconds, rates)
        showing.submit(copy_context().run, show_figures)

    def show_figures() -> None:
        with _shown_or_not(logger):
            publish_artifacts(run)

    with ThreadPoolExecutor(max_workers=1) as showing:
        yield Events(stepped, evaluated)


@contextmanager
def _shown_or_not(logger: "Logger | LoggerAdapter[Logger]") -> Iterator[None]:
    """What cannot be shown now, as Prefect's server is away, is no reason to stop training."""
    try:
        yield
    except Exception as error:
        logger.warning("not shown in the UI: %s: %s", type(error).__name__, error)


def publish_artifacts(run: RlRun) -> None:
    """The learning curve, its figures and the metrics, as they are now."""
    create_image_artifact(
        image_url=curve_data_uri(read_evaluations(run.store, run.layout), run.run_id),
        key="rl-learning-curve",
        description=f"Held-out solve rates of {run.run_id}",
    )
    for key, table in (
        ("rl-evaluations", evaluation_table(run.store, run.layout)),
        ("rl-metrics", metrics_table(run.store, run.layout)),
    ):
        create_table_artifact(
            key=key,
            table=[dict(zip(table.head, row, strict=True)) for row in table.rows],
            description=f"{table.title} of {run.run_id}",
        )


if __name__ == "__main__":
    rl_rounds()
