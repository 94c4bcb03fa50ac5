"""Prefect task of the provision stage."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from infra.pool import Job
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool


@task(name="rehearse-nodes", cache_policy=NO_CACHE)
def rehearse(config: ProvisionConfig, models: list[str]) -> list[dict[str, Any]]:
    """Load the models on nodes; one row per node that took the work."""
    with local_pool(config) as pool:
        jobs = [
            pool.submit(Job(f"load-{number}", "load", {"models": models}))
            for number in range(config.node_count())
        ]
        results = [job.result() for job in jobs]
    return [
        {"node": result.node_id, "seconds": round(result.seconds, 1), **result.output}
        for result in results
    ]
