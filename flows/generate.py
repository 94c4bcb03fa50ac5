"""Flow `generate`: planned shards to committed traces.

Works on a run that exists and on what its plan has left to do. On a laptop:
`python flows/generate.py RUN_ID [ROOT]`.
"""

import sys
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from flows.outcome import outcome
from flows.runs import find_run
from flows.session import session
from flows.shards import RUNNER, run_stage


@flow(
    name="generate",
    flow_run_name="generate {run_id}",
    task_runner=RUNNER,
)
def generate(run_id: str, root: str = "./data") -> State[Any]:
    """Generate every planned shard that has no traces yet.

    Args:
        run_id: a run that exists.
        root: storage root of the run.
    """
    run = find_run(root, run_id)
    with session(run) as opened:
        return outcome(run, run_stage(opened, "generate"))


if __name__ == "__main__":
    generate(*sys.argv[1:])
