"""Prefect task of the verify stage."""

from collections.abc import Callable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.generate.plan import Shard
from tasks.retry import RETRIES, RETRY_DELAY_SECONDS, is_retryable
from tasks.verify.stage import Scorer


@task(
    name="verify-shard",
    task_run_name="verify {model} {shard_id:.8}",
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=RETRY_DELAY_SECONDS,
    retry_condition_fn=is_retryable,
)
def verify(scorer: Callable[[], Scorer], model: str, shard_id: str, rows: Shard) -> dict[str, Any]:
    """Score one shard; returns the path and counts of what is committed."""
    manifest = scorer().run(rows)
    return {"path": manifest.path, "rows": manifest.rows, **manifest.info["counts"]}
