"""`tracemill rl`: the flow `rl-rounds` in this process, with progress on the terminal."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.progress import Progress
from rich.text import Text

from flows.console import (
    JsonOption,
    ProfileOption,
    RunIdOption,
    SetOption,
    bad_usage_exits_2,
    err,
    out,
)
from flows.progress import live_progress

if TYPE_CHECKING:
    from flows.rl_config import RlConfig
    from flows.rl_runs import RlRun


@bad_usage_exits_2
def rl(
    profile: ProfileOption = "rl-local",
    set_: SetOption = None,
    run_id: RunIdOption = "",
    as_json: JsonOption = False,
) -> None:
    """RL rounds with weight broadcast: a policy, tasks, a better policy. The same id resumes."""
    # The progress display says what Prefect's log would; a worker's or a user's own level stays.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from flows.profiles import load_config
    from flows.rl_config import RlConfig

    raise typer.Exit(rl_here(load_config(RlConfig, profile, set_ or []), run_id, as_json))


def rl_here(config: "RlConfig", run_id: str, as_json: bool) -> int:
    """Run to the end and print the figures; 0 done, 1 failed."""
    from flows.rl_runs import open_rl
    from flows.runs import new_run_id
    from infra.reaper import watch_this_process

    run_id = run_id or new_run_id()
    # A config that does not fit the run is refused here, before a server is started.
    run = open_rl(config, run_id)
    err.print(f"run [bold]{run_id}[/bold] in {run.store.uri()}", highlight=False)
    watch_this_process()
    with _server():
        from flows.errors import FlowError
        from flows.rl import rl_rounds
        from flows.tables import rich_table
        from tasks.train.rounds.errors import RoundsError
        from tasks.train.rounds.report import evaluation_table, final_rates, read_evaluations

    started = time.perf_counter()
    with live_progress(err, partial(_set_bar, run), 60):
        state = rl_rounds(config, run_id, return_state=True)
    if not state.is_completed():
        cause = state.result(raise_on_failure=False)
        if isinstance(cause, FlowError | RoundsError):
            err.print(Text.assemble(("failed: ", "red"), str(cause)), soft_wrap=True)
        else:
            err.print(Text.assemble(("failed: ", "red"), str(state.message)))
        err.print(f"start it again with --run-id {run_id}: it goes on where it stopped")
        return 1
    seconds = time.perf_counter() - started
    if as_json:
        rates = final_rates(read_evaluations(run.store, run.layout))
        print(
            json.dumps({"run_id": run_id, "seconds": round(seconds, 1), "kinds": rates}, indent=2)
        )
    else:
        out.print(rich_table(evaluation_table(run.store, run.layout)))
        out.print(f"report: {run.store.uri(run.layout.report)}", soft_wrap=True)
        out.print(f"took {seconds:.0f} s")
    return 0


@contextmanager
def _server() -> Iterator[None]:
    """Start Prefect's own server, where no other is named, while the block imports."""
    from prefect import get_client
    from prefect.settings import PREFECT_API_URL

    if PREFECT_API_URL.value():
        yield
        return
    # Not in the thread: two that import the same modules at once may meet half of one.
    import prefect.server.api.server  # noqa: F401

    def start() -> None:
        with suppress(Exception), get_client(sync_client=True):
            pass  # the flow says what is wrong

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    yield
    starting.join()


def _set_bar(run: "RlRun", progress: Progress) -> None:
    """Steps, and the newest held-out figures."""
    from tasks.train.rounds.evaluation import Evaluation

    store, layout = run.store, run.layout
    text = "steps"
    if measured := store.list(f"{layout.root}/evaluations"):
        newest = Evaluation.from_json(store.read_json(measured[-1]))
        rates = ", ".join(f"{kind} {r.sampled.mean:.2f}" for kind, r in newest.kinds.items())
        text = f"version {newest.version}: {rates}"
    bar = progress.task_ids[0] if progress.task_ids else progress.add_task(text)
    done = len(store.list(f"{layout.root}/steps"))
    progress.update(bar, completed=done, total=run.config.rounds.steps, description=text)
