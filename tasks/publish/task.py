"""Prefect task of the publish stage."""

from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from infra.storage import RunLayout, Store
from tasks.publish.config import PublishConfig
from tasks.publish.stage import publish as publish_splits


@task(name="publish-splits", cache_policy=NO_CACHE)
def publish(
    config: PublishConfig,
    root: str,
    run_id: str,
    *,
    annotators: list[str],
    teacher: str,
    config_hash: str,
    code_version: str,
) -> dict[str, Any]:
    """Publish a version; returns its name, version, path and rows per config."""
    published = publish_splits(
        Store(root),
        RunLayout(run_id),
        config,
        annotators=annotators,
        teacher=teacher,
        config_hash=config_hash,
        code_version=code_version,
    )
    return asdict(published)
