"""Run the flow `run` in this process, with progress on the terminal."""

import json
import time

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from flows.config import RunConfig
from flows.errors import FlowError
from flows.outcome import PARTIAL
from flows.progress import live_progress
from flows.runs import Run, new_run_id, open_run
from flows.shards import STAGES
from flows.tables import print_funnel
from infra.reaper import watch_this_process
from infra.storage import list_committed, read_manifest, read_table
from tasks.report.funnel import funnel

FOLDERS = {"generate": "traces", "validate": "verdicts", "verify": "rewards"}


def run_here(config: RunConfig, run_id: str, out: Console, err: Console, as_json: bool) -> int:
    """Run to the end and print the funnel; 0 complete, 1 failed or something is missing."""
    run_id = run_id or new_run_id()
    # A config that does not fit the run is refused here, before a server is started.
    opened = open_run(config, run_id)
    err.print(f"run [bold]{run_id}[/bold] in {opened.store.uri()}", highlight=False)
    watch_this_process()
    from flows.run import run as run_flow

    started = time.perf_counter()
    with live_progress(err, _Bars(opened).look, 28):
        state = run_flow(config, run_id, return_state=True)
    if not state.is_completed():
        cause = state.result(raise_on_failure=False)
        if isinstance(cause, FlowError):
            raise cause
        err.print(Text.assemble(("failed: ", "red"), str(state.message)))
        err.print(f"start it again with --run-id {run_id}: what is committed stays")
        return 1
    result = funnel(opened.store, opened.layout)
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        print_funnel(out, result)
        out.print(f"report: {opened.store.uri(opened.layout.report)}", soft_wrap=True)
        if result.published:
            out.print(f"dataset: {opened.store.uri(result.published.path)}", soft_wrap=True)
        out.print(f"took {time.perf_counter() - started:.0f} s")
    if state.name == PARTIAL:
        err.print(Text.assemble((f"{PARTIAL}: ", "yellow"), str(state.message)))
        return 1
    return 0


class _Bars:
    """Committed shards per stage."""

    def __init__(self, run: Run):
        self._run = run
        self._bars: dict[str, TaskID] = {}
        self._planned: dict[str, int] = {}

    def look(self, progress: Progress) -> None:
        """Set the bars by what is committed now."""
        run = self._run
        tasks = read_manifest(run.store, run.layout.tasks)
        rows = tasks.rows if tasks else None
        self._set(progress, "collect: tasks", rows or 0, rows)
        shards = sum(self._shards(phase) for phase in ("annotators", "teacher"))
        for stage in STAGES:
            done = len(list_committed(run.store, f"{run.layout.root}/{FOLDERS[stage]}"))
            if shards:
                self._set(progress, f"{stage}: shards", done, shards)

    def _shards(self, phase: str) -> int:
        if phase not in self._planned:
            path = self._run.layout.plan(phase)
            if read_manifest(self._run.store, path) is None:
                return 0
            table = read_table(self._run.store, path, columns=["model", "shard_id"])
            self._planned[phase] = len(set(table["shard_id"].to_pylist()))
        return self._planned[phase]

    def _set(self, progress: Progress, name: str, done: int, total: int | None) -> None:
        if name not in self._bars:
            self._bars[name] = progress.add_task(name, total=total)
        progress.update(self._bars[name], completed=done, total=total)
