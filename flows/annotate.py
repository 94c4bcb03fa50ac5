"""Flow `annotate`: the annotators' rewards to the difficulty of each task.

Works on a run that exists. On a laptop: `python flows/annotate.py RUN_ID [ROOT]`.
"""

import sys
from typing import Any

from prefect import flow

from flows.runs import find_run
from tasks.annotate.task import annotate as annotate_tasks


@flow(name="annotate", flow_run_name="annotate {run_id}")
def annotate(run_id: str, root: str = "./data") -> dict[str, Any]:
    """Commit the difficulty table of a run.

    Args:
        run_id: a run that exists.
        root: storage root of the run.
    """
    run = find_run(root, run_id)
    return annotate_tasks(run.config.annotate, run.store.root, run.run_id)


if __name__ == "__main__":
    annotate(*sys.argv[1:])
