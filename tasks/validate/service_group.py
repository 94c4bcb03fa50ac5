"""What the validator service answers for a group's files.

A group that fails the whole prefill is replayed stage by stage from the inputs that its stages
committed to. Those are in no upload: the answer stays `pending` and lists under `challenge` what a
stage has to hand out, as `<its file's name without .parquet>.<trace id>.safetensors` with one
tensor `rows`, until `CHALLENGE_SECONDS` are over. Invariants: a stage is named for what it signed
or did not hand out in time; a group that is incomplete, or out of limits without a stage that is,
names nobody and is `unknown`.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from infra.inference.transformers_engine import TransformersEngine
from infra.storage import Store
from tasks.validate.config import ValidateConfig
from tasks.validate.errors import BadUpload
from tasks.validate.group_limits import GroupLimits
from tasks.validate.service_files import UploadReader
from tasks.validate.service_queue import Work, WorkQueue
from tasks.validate.service_work import rejection, work
from tasks.validate.work_units import WorkUnits
from toploc.errors import MalformedRecord
from toploc.groups import GroupFile, GroupTask, StageRecord
from toploc.replay import CHALLENGE_SECONDS, GroupVerdict, judge_group
from toploc.transcript import Transcript

POLL_SECONDS = 2.0
MAX_INPUT_BYTES = 1 << 30


class AwaitingInput(Exception):
    """A stage has been asked for an input and still has time."""

    def __init__(self, stage: int, trace_id: str, file: str):
        super().__init__(file)
        self.challenge = {"index": stage, "trace_id": trace_id, "file": file}


def validate_group(
    name: str,
    item: Work,
    queue: WorkQueue,
    store: Store,
    reader: UploadReader,
    engine: TransformersEngine,
    config: ValidateConfig,
    units: WorkUnits,
) -> dict[str, Any] | None:
    """The answer for one group; None when a stage still has time to hand out its input."""
    request = item.request
    stem = name.removesuffix(".parquet")
    files = [f"{stem}-{index}.parquet" for index in range(request["group_size"])]
    tables: list[list[dict[str, Any]]] = []
    for index, (file, sha256) in enumerate(zip(files, request["file_shas"], strict=True)):
        try:
            GroupFile.parse(file)
            tables.append(reader.read(file, sha256, None))
        except (BadUpload, MalformedRecord) as error:
            return rejection(f"stage {index}: {error}") | {"failing_indices": [index]}
    deadline = item.result.get("deadline", time.time() + CHALLENGE_SECONDS)
    answer = {"failing_indices": [], **work(tables[-1], units)}
    verdicts = []
    try:
        for row in tables[-1]:
            verdicts.append(
                _judge(row, tables, request["group_id"], store, engine, config, files, deadline)
            )
    except AwaitingInput as wanted:
        queue.postpone(
            item,
            time.time() + POLL_SECONDS,
            {"challenge": [wanted.challenge], "deadline": deadline, "failing_indices": []},
        )
        return None
    return answer | _sum(verdicts)


def _judge(
    row: Mapping[str, Any],
    tables: Sequence[Sequence[Mapping[str, Any]]],
    group_id: str,
    store: Store,
    engine: TransformersEngine,
    config: ValidateConfig,
    files: Sequence[str],
    deadline: float,
) -> GroupVerdict:
    task = GroupTask(
        group_id=group_id,
        members=tuple(table[0]["node_id"] for table in tables),
        trace_id=row["trace_id"],
        model_revision=row["model_revision"],
        prompt_ids=row["prompt_ids"],
        sampling=row["sampling"],
        seed=row["seed"],
    )

    def handed_out(stage: int) -> Tensor | None:
        file = f"{files[stage].removesuffix('.parquet')}.{row['trace_id']}.safetensors"
        if not store.exists(file):
            if time.time() < deadline:
                raise AwaitingInput(stage, row["trace_id"], file)
            return None
        return read_rows(store, file)

    limits = GroupLimits(row, _environments(row["trace_id"], tables), engine, config)
    return judge_group(
        task,
        Transcript.of_row(row),
        row["signature"],
        _records(row["trace_id"], tables),
        engine.stages(len(tables)),
        handed_out,
        limits.tokens,
        limits.proof,
    )


def _environments(trace_id: str, tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """What each stage says that it ran on, by stage; empty for one that has no such trace."""
    return [
        next((row["engine"] for row in table if row["trace_id"] == trace_id), "")
        for table in tables
    ]


def _records(
    trace_id: str, tables: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[int, StageRecord]:
    """The stages' records of a trace, as far as they can be read."""
    records = {}
    for stage, table in enumerate(tables):
        for row in table:
            if row["trace_id"] == trace_id and row["stage_proofs"]:
                try:
                    records[stage] = StageRecord.from_bytes(row["stage_proofs"][-1])
                except MalformedRecord:
                    continue  # as good as none
    return records


def read_rows(store: Store, file: str) -> Tensor | None:
    """What a stage handed out; None for what is no tensor: whose digest it has, replay checks."""
    if store.size(file) > MAX_INPUT_BYTES:
        return None
    try:
        rows: Tensor | None = load(store.read_bytes(file)).get("rows")
    except (SafetensorError, KeyError):  # KeyError: a dtype that torch does not have
        return None
    return rows


def _sum(verdicts: Sequence[GroupVerdict]) -> dict[str, Any]:
    faults = [verdict.fault for verdict in verdicts if verdict.fault]
    if faults:
        first = faults[0]
        return {
            "status": "reject",
            "failing_indices": sorted({fault.stage for fault in faults}),
            "reason": f"stage {first.stage}: {first.kind}: {first.evidence}"[:1000],
        }
    if all(verdict.outcome == "accepted" for verdict in verdicts):
        return {"status": "accept", "reason": None}
    missing = sorted({stage for verdict in verdicts for stage in verdict.missing})
    whole = [reason for verdict in verdicts for reason in verdict.reasons]
    reason = f"incomplete: no record of stages {missing}" if missing else "; ".join(whole[:5])
    return {"status": "unknown", "reason": reason}
