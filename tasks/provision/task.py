"""Prefect task of the provision stage."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from infra.pool import Job, NodePool


@task(name="rehearse-nodes", cache_policy=NO_CACHE)
def rehearse(pool: NodePool, nodes: int, models: list[str]) -> list[dict[str, Any]]:
    """Load the models on nodes; one row per node that took the work."""
    jobs = [
        pool.submit(Job(f"load-{number}", "load", {"models": models})) for number in range(nodes)
    ]
    results = [job.result() for job in jobs]
    return [
        {"node": result.node_id, "seconds": round(result.seconds, 1), **result.output}
        for result in results
    ]
