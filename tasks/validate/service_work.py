"""What the validator service answers for a file and for a group, given its model.

The judgement of a file's rows is the flow's own (`tasks.validate.work.judge`). Invariants: `accept`
only if every trace was judged and nothing speaks against any; `reject` only for what a node signed
or uploaded itself, and where limits alone speak against it, only for what no honest node has in all
its uploads; a refusal that is nobody's lie is `unknown`, a fault of ours `crashed`.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from infra.inference.protocol import Engine
from tasks.validate.audit import Finding
from tasks.validate.config import ValidateConfig
from tasks.validate.errors import BadUpload
from tasks.validate.service_files import UploadReader
from tasks.validate.service_queue import Work, WorkQueue
from tasks.validate.work import judge
from tasks.validate.work_units import WorkUnits

MAX_REASONS = 5


def validate_file(
    name: str,
    item: Work,
    queue: WorkQueue,
    reader: UploadReader,
    engine: Engine,
    config: ValidateConfig,
    units: WorkUnits,
) -> dict[str, Any]:
    """The answer for one file."""
    node_id = item.request["address"]
    try:
        rows = reader.read(name, item.request["file_sha"], node_id)
    except BadUpload as error:
        return rejection(str(error))
    verdicts = judge(rows, engine, config)
    found = [
        {
            "trace_id": row["trace_id"],
            "verdict": verdict.verdict,
            "reasons": verdict.reasons,
            "figures": json.dumps(verdict.figures),
        }
        for row in rows
        for verdict in [verdicts[row["trace_id"]]]
    ]
    counts = Counter(row["verdict"] for row in found)
    finding = Finding.of(found)
    accepted = [row["trace_id"] for row in found if row["verdict"] == "accepted"]
    known = queue.record(node_id, dict.fromkeys(accepted, 0.0) | dict(finding.beyond))
    if finding.lies or (finding.beyond and known.proves_lies()):
        status = "reject"
    elif counts["crashed"]:
        status = "crashed"
    else:
        # What is left is honest, or refused without being anybody's lie.
        status = "accept" if counts["accepted"] == len(found) else "unknown"
    return {
        "status": status,
        "reason": _reasons(found),
        "verdicts": dict(sorted(counts.items())),
        **work(rows, units),
    }


def work(rows: Sequence[Mapping[str, Any]], units: WorkUnits) -> dict[str, float]:
    """The work units of rows, as the service states them."""
    sizes = [units.flops(len(row["prompt_ids"]), len(row["output_ids"])) for row in rows]
    return {
        "input_flops": float(sum(size for size, _ in sizes)),
        "output_flops": float(sum(size for _, size in sizes)),
    }


def rejection(reason: str) -> dict[str, Any]:
    """The answer for a file that cannot be accepted whatever the model says."""
    return {"status": "reject", "reason": reason, "input_flops": 0.0, "output_flops": 0.0}


def _reasons(found: Sequence[Mapping[str, Any]]) -> str | None:
    reasons = Counter(reason for row in found for reason in row["reasons"])
    first = [f"{reason} ({count})" for reason, count in reasons.most_common(MAX_REASONS)]
    return "; ".join(first) or None
