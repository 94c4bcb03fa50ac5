"""Flow `provision`: start the nodes of a config and have each load the run's models.

A rehearsal before a long run: it shows whether the nodes start, how long the models take to load
and how much memory a node then holds. On a laptop: `python flows/provision.py`.
"""

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact

from flows.collect import DEFAULT
from flows.config import RunConfig
from flows.nodes import pool_of
from flows.runs import new_run_id
from infra.storage import Store
from tasks.provision.task import rehearse


@flow(name="provision", flow_run_name="provision")
def provision(config: RunConfig = DEFAULT) -> list[dict[str, Any]]:
    """Start the nodes, load every model of the config on each, stop them again.

    Args:
        config: its sections `provision` and `generate` say how many nodes and which models.
    """
    models = sorted(
        {use.model for phase in ("annotators", "teacher") for use in config.uses(phase)}
    )
    asked = config.provision
    count = sum(own.nodes for own in asked.work_pools) or asked.node_count()
    store = Store(config.storage.root)
    with pool_of(asked, store, f"rehearsals/{new_run_id()}") as pool:
        nodes = rehearse(pool, count, models)
    create_table_artifact(key="nodes", table=nodes, description="Nodes and their models")
    return nodes


if __name__ == "__main__":
    provision()
