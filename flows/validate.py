"""Flow `validate`: committed traces to committed verdicts.

Works on a run that exists and on what its plan has left to do. On a laptop:
`python flows/validate.py RUN_ID [ROOT]`.
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
    name="validate",
    flow_run_name="validate {run_id}",
    task_runner=RUNNER,
)
def validate(run_id: str, root: str = "./data") -> State[Any]:
    """Judge every generated shard that has no verdicts yet.

    Args:
        run_id: a run that exists.
        root: storage root of the run.
    """
    run = find_run(root, run_id)
    with session(run) as opened:
        return outcome(run, run_stage(opened, "validate"))


if __name__ == "__main__":
    validate(*sys.argv[1:])
