"""Flow `collect`: sources to committed tasks.

Starts a run: writes its run.toml, then collects. On a laptop: `python flows/collect.py`.
"""

from typing import Any

from prefect import flow

from flows.config import RunConfig
from flows.profiles import load_profile
from flows.runs import open_run
from tasks.collect.task import collect as collect_tasks

DEFAULT = load_profile("local")


@flow(name="collect", flow_run_name="collect {run_id}")
def collect(config: RunConfig = DEFAULT, run_id: str = "") -> dict[str, Any]:
    """Collect, deduplicate and self-test the tasks of a run.

    Args:
        config: the run's config; a run id keeps the config that it was started with.
        run_id: the run; empty names a new one after the time.
    """
    run = open_run(config, run_id)
    return collect_tasks(config.collect, run.store.root, run.run_id)


if __name__ == "__main__":
    collect()
