"""Base job templates of the Prefect work pools that nodes run in, one per kind of infrastructure.

`prefect work-pool create NAME --type TYPE --base-job-template infra/work_pools/TYPE.json`. A
template is per pool, so there is one pool per class of GPU; a deployment sets the variables.
"""

from pathlib import Path

DIRECTORY = Path(__file__).parent
TYPES = ("process", "docker", "kubernetes")


def template(kind: str) -> Path:
    """The base job template of a type of work pool."""
    return DIRECTORY / f"{kind}.json"
