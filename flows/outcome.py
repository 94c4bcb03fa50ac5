"""The final state of a flow: Completed, or PartiallyComplete with what is missing."""

from collections.abc import Sequence
from typing import Any

from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.runs import Run
from flows.shards import Missing

PARTIAL = "PartiallyComplete"
MAX_NAMED = 20


def outcome(run: Run, missing: Sequence[Missing], message: str = "") -> State[Any]:
    """The state that a flow returns; a shard that is missing never fails the whole run."""
    if not missing:
        return Completed(message=message or f"run {run.run_id}: nothing is missing")
    lines = [f"{m.stage} {m.model} {m.shard_id}: {m.why}" for m in missing[:MAX_NAMED]]
    more = len(missing) - len(lines)
    if more > 0:
        lines.append(f"and {more} more")
    text = (
        f"run {run.run_id}: {len(missing)} shard stages are missing; start it again with the same "
        "run id to redo them\n" + "\n".join(lines)
    )
    return Completed(name=PARTIAL, message=text)
