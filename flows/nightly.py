"""Flow `nightly`: finish what is unfinished, then make the day's own run.

Schedule: `nightly` in prefect.yaml, 02:00 UTC, off until it is switched on. On a laptop:
`python flows/nightly.py`. A run is unfinished while a planned shard is not committed or nothing of
it is published; it is resumed with the config that it was started with.
"""

from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed

from flows.collect import DEFAULT
from flows.config import RunConfig
from flows.outcome import PARTIAL
from flows.run import run
from flows.runs import find_run
from infra.storage import Store, read_manifest
from tasks.report.funnel import funnel


@flow(name="nightly", flow_run_name="nightly")
def nightly(config: RunConfig = DEFAULT) -> State[Any]:
    """Resume unfinished runs of the storage root, then run the config under the day's id.

    Args:
        config: the day's run; unfinished runs are looked for in its storage root.
    """
    today = datetime.now(UTC).strftime("nightly-%Y%m%d")
    root = config.storage.root
    again = [run_id for run_id in unfinished(root) if run_id != today]
    get_run_logger().info("unfinished runs: %s", ", ".join(again) or "none")
    states = {
        run_id: run(find_run(root, run_id).config, run_id, return_state=True) for run_id in again
    }
    states[today] = run(config, today, return_state=True)
    failed = [run_id for run_id, state in states.items() if not state.is_completed()]
    partial = [run_id for run_id, state in states.items() if state.name == PARTIAL]
    if failed:
        return Failed(
            message=f"failed: {', '.join(failed)}; partial: {', '.join(partial) or 'none'}"
        )
    if partial:
        return Completed(name=PARTIAL, message=f"incomplete: {', '.join(partial)}")
    return Completed(message=f"complete: {', '.join(states)}")


def unfinished(root: str) -> list[str]:
    """Ids of runs that have a config and are not complete, in order."""
    store = Store(root)
    ids = sorted({path.split("/")[1] for path in store.list("runs") if path.endswith("/run.toml")})
    found = []
    for run_id in ids:
        layout = find_run(root, run_id).layout
        if read_manifest(store, layout.tasks) is None or not funnel(store, layout).complete:
            found.append(run_id)
    return found


if __name__ == "__main__":
    nightly()
