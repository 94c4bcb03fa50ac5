"""Prefect task of the annotate stage."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from infra.storage import RunLayout, Store
from tasks.annotate.config import AnnotateConfig
from tasks.annotate.stage import annotate as annotate_run


@task(name="annotate-tasks", cache_policy=NO_CACHE)
def annotate(config: AnnotateConfig, root: str, run_id: str) -> dict[str, Any]:
    """Commit the difficulty of every task; returns rows and counts."""
    manifest = annotate_run(Store(root), RunLayout(run_id), config, producer="annotate")
    return {"rows": manifest.rows, **manifest.info["counts"]}
