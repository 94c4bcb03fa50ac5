"""Prefect task of the collect stage."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from infra.storage import RunLayout, Store
from tasks.collect.collect import collect_tasks
from tasks.collect.config import CollectConfig


@task(name="collect-tasks", cache_policy=NO_CACHE)
def collect(config: CollectConfig, root: str, run_id: str) -> dict[str, Any]:
    """Commit the run's tasks; returns rows, quarantined rows and rows by task type."""
    manifest = collect_tasks(config, Store(root), RunLayout(run_id))
    return {"rows": manifest.rows, **manifest.info}
