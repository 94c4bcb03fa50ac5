"""Flow `verify`: accepted traces to committed rewards.

Works on a run that exists and on what its plan has left to do. On a laptop:
`python flows/verify.py RUN_ID [ROOT]`.
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
    name="verify",
    flow_run_name="verify {run_id}",
    task_runner=RUNNER,
)
def verify(run_id: str, root: str = "./data") -> State[Any]:
    """Score every judged shard that has no rewards yet.

    Args:
        run_id: a run that exists.
        root: storage root of the run.
    """
    run = find_run(root, run_id)
    with session(run) as opened:
        return outcome(run, run_stage(opened, "verify"))


if __name__ == "__main__":
    verify(*sys.argv[1:])
