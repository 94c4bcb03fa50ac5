"""The Prefect work pools of prefect.yaml: `python -m flows.work_pools` makes or updates them.

`local` runs flows; the others run nodes (flow `serve-node`), one pool per class of machine, because
a base job template belongs to a pool. A worker has to be started for each that is used:
`prefect worker start --pool gpu-2x640gb` where docker and the cards are.
"""

import json

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate

from infra.work_pools import template

WORK_POOL = "local"
POOLS = {
    WORK_POOL: "process",
    "cpu": "process",
    "gpu-1x1128gb": "docker",
    "gpu-2x640gb": "docker",
    "gpu-kubernetes": "kubernetes",
}
"""Name -> type of infrastructure."""


def main() -> None:
    """Make the pools on the server of PREFECT_API_URL; those that are there get the template."""
    with get_client(sync_client=True) as client:
        for name, kind in POOLS.items():
            job = json.loads(template(kind).read_text("utf-8"))
            pool = WorkPoolCreate(name=name, type=kind, base_job_template=job)
            client.create_work_pool(pool, overwrite=True)


if __name__ == "__main__":
    main()
