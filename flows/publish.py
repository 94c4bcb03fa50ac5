"""Flow `publish`: a run's accepted traces to a version of the dataset, with report and artifacts.

Works on a run that exists. On a laptop: `python flows/publish.py RUN_ID [ROOT]`.
"""

import sys
from typing import Any

from prefect import flow

from flows.artifacts import publish_artifacts, write_results
from flows.runs import Run, code_version, find_run
from tasks.publish.task import publish as publish_run


@flow(name="publish", flow_run_name="publish {run_id}")
def publish(run_id: str, root: str = "./data") -> dict[str, Any]:
    """Publish what a run has accepted, and write its report.

    Args:
        run_id: a run that exists.
        root: storage root of the run.
    """
    return publish_results(find_run(root, run_id))


def publish_results(run: Run) -> dict[str, Any]:
    """The same for a run at hand, inside any flow."""
    published = publish_run(
        run.config.publish,
        run.store.root,
        run.run_id,
        annotators=[use.model for use in run.config.generate.annotators],
        teacher=run.config.generate.teacher.model,
        config_hash=run.config.content_hash(),
        code_version=code_version(),
    )
    publish_artifacts(run, write_results(run))
    return published


if __name__ == "__main__":
    publish(*sys.argv[1:])
