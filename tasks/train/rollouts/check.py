"""The trusted side that needs the policy: verdicts for the rollouts of one upload.

Runs on a trusted node, as jobs of the kind `check_rollouts`. Each row is judged by the weights of
the version that it names, as a trace is (`tasks.validate`): one prefill gives proofs, margins of
the drawn tokens, log-probabilities and the ending together. A version has no calibration profile of
its own: it is judged by the limits, by dtype, of the model that training started from. Invariant: a
row whose version is not to be had is not accepted, and nobody is to blame for it.
"""

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from infra.broadcast.errors import BroadcastError
from infra.inference.protocol import Engine
from infra.pool import Job
from infra.storage import Store, read_table
from tasks.train.rollouts.job import Broadcast
from tasks.train.rollouts.policy import Policies
from tasks.train.rollouts.work import trace
from tasks.validate.binding import with_copies
from tasks.validate.check import Verdict
from tasks.validate.config import ValidateConfig
from tasks.validate.work import judge

CHECK_KIND = "check_rollouts"
NO_VERSION = "no_version"
"""Reason of a crashed verdict: the weights to judge by are not to be had."""


class CheckPayload(BaseModel):
    """What a checking node gets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str
    rows: str = Field(description="Committed table of the upload's rows.")
    model: str
    broadcast: Broadcast
    config: ValidateConfig
    calibration: str = Field(description="Revision whose profile has the limits; empty: none.")
    audited: bool = Field(description="False looks only at what needs no prefill.")


def check_job(payload: CheckPayload) -> Job:
    """The job for a pool of trusted nodes."""
    # What is generated is judged while more is being generated, not after all of it.
    job_id = f"{CHECK_KIND}-{payload.rows.rpartition('/')[2]}-{payload.audited}"
    return Job(job_id=job_id, kind=CHECK_KIND, payload=payload.model_dump(), priority=-1)


class RolloutCheck:
    """What answers jobs of the kind `check_rollouts`."""

    def __init__(self, policies: Policies):
        self._policies = policies

    def __call__(
        self, payload: dict[str, Any], engine_of: Callable[[str], Engine]
    ) -> dict[str, Any]:
        """Verdict rows, in the order of the table."""
        asked = CheckPayload.model_validate(payload)
        rows = read_table(Store(asked.root), asked.rows).to_pylist()
        verdicts: dict[str, Verdict] = {}
        for version in sorted({row["step"] for row in rows}):
            own = [row for row in rows if row["step"] == version]
            verdicts |= self._judge(asked, version, own)
        return {
            "verdicts": [
                {
                    "trace_id": row["sample_id"],
                    "verdict": verdicts[row["sample_id"]].verdict,
                    "reasons": verdicts[row["sample_id"]].reasons,
                    "figures": json.dumps(verdicts[row["sample_id"]].figures, sort_keys=True),
                }
                for row in rows
            ]
        }

    def _judge(
        self, asked: CheckPayload, version: int, rows: list[dict[str, Any]]
    ) -> dict[str, Verdict]:
        policy = self._policies.of(asked.model, asked.broadcast)
        try:
            engine = policy.use(version)
        except BroadcastError as error:
            found = Verdict("crashed", [NO_VERSION], {"error": str(error)[:500]})
            return {row["sample_id"]: found for row in rows}
        traces = [trace(row) for row in rows]
        verdicts = judge(
            traces, engine, asked.config, audited=asked.audited, calibration=asked.calibration
        )
        # Their signatures held when they came in (`claims`), before the table was committed.
        return with_copies(traces, verdicts)
