"""What the validator service answers for a group's files.

A group that fails the whole prefill is replayed stage by stage from the inputs that its stages
committed to. Those are in no upload: the answer stays `pending` and lists under `challenge` what
the stages have to hand out, each as `<its file's name without .parquet>.<trace id>.safetensors`
with one tensor `rows`, and until when. All stages of all such traces are asked at once, so that
nobody can use up another's time and an answer takes no longer than `CHALLENGE_SECONDS` and the
judging. Invariants: a stage is named for what it signed, or did not hand out within that time from
when it was asked, and where limits alone speak against it, for more than an honest one ever has in
all its uploads; a group that is incomplete, or out of limits without a stage that is, names nobody
and is `unknown`.
"""

import time
from collections.abc import Mapping, Sequence, Set
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
from toploc.groups import GroupFile, GroupTask, StageRecord, tokens_digest
from toploc.replay import CHALLENGE_SECONDS, GroupVerdict, judge_group
from toploc.transcript import Transcript

POLL_SECONDS = 2.0
MAX_INPUT_BYTES = 1 << 30


class AwaitingInputs(Exception):
    """A trace cannot be judged before its stages have handed out their inputs."""


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
    """The answer for one group; None when stages still have time to hand out inputs."""
    challenge: list[dict[str, Any]] = item.result.get("challenge", [])
    if any(time.time() < one["deadline"] and not store.exists(one["file"]) for one in challenge):
        queue.postpone(item, time.time() + POLL_SECONDS, item.result)
        return None
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
    asked = {one["file"] for one in challenge}
    verdicts, awaited = [], []
    for row in tables[-1]:
        try:
            verdicts.append(_judge(row, tables, request, store, engine, config, files, asked))
        except AwaitingInputs:
            awaited += _challenge(row, tables, files, asked)
    if awaited:
        now = time.time()
        new = [one | {"deadline": now + CHALLENGE_SECONDS} for one in awaited]
        waiting = {"challenge": [*challenge, *new], "failing_indices": []}
        queue.postpone(item, now + POLL_SECONDS, waiting)
        return None
    named = set()
    judged = dict(zip((row["trace_id"] for row in tables[-1]), verdicts, strict=True))
    for stage, node_id in enumerate(table[0]["node_id"] for table in tables):
        lied, traces = _of_stage(stage, judged)
        known = queue.record(node_id, traces)
        if lied or (any(traces.values()) and known.proves_lies()):
            named.add(stage)
    return work(tables[-1], units) | _sum(verdicts, named)


def _judge(
    row: Mapping[str, Any],
    tables: Sequence[Sequence[Mapping[str, Any]]],
    request: Mapping[str, Any],
    store: Store,
    engine: TransformersEngine,
    config: ValidateConfig,
    files: Sequence[str],
    asked: Set[str],
) -> GroupVerdict:
    task = GroupTask(
        group_id=request["group_id"],
        members=tuple(table[0]["node_id"] for table in tables),
        trace_id=row["trace_id"],
        model_revision=row["model_revision"],
        prompt_ids=row["prompt_ids"],
        sampling=row["sampling"],
        seed=row["seed"],
        attempt=request["attempt"],
    )

    def handed_out(stage: int) -> Tensor | None:
        file = _input_file(files[stage], row["trace_id"])
        if store.exists(file):
            return read_rows(store, file)
        if file not in asked:
            raise AwaitingInputs
        return None

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


def _input_file(file: str, trace_id: str) -> str:
    """Where a stage hands out the input that it kept of a trace."""
    return f"{file.removesuffix('.parquet')}.{trace_id}.safetensors"


def _challenge(
    row: Mapping[str, Any],
    tables: Sequence[Sequence[Mapping[str, Any]]],
    files: Sequence[str],
    asked: Set[str],
) -> list[dict[str, Any]]:
    """What the stages have to hand out of a trace, and have not been asked for.

    The tokens that stage 0 says came from the last stage are known unless the two disagree.
    """
    trace_id: str = row["trace_id"]
    agreed = _records(trace_id, tables)[0].input_digest == tokens_digest(row["output_ids"])
    inputs = [
        {"index": stage, "trace_id": trace_id, "file": _input_file(file, trace_id)}
        for stage, file in enumerate(files)
        if stage or not agreed
    ]
    return [one for one in inputs if one["file"] not in asked]


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


def _of_stage(stage: int, verdicts: Mapping[str, GroupVerdict]) -> tuple[bool, dict[str, float]]:
    """Whether a trace proves that a stage lied, and what limits said of it; see WorkQueue.record.

    A node that holds two stages has a trace in each.
    """
    lied, traces = False, {}
    for trace_id, verdict in verdicts.items():
        fault = verdict.fault
        if verdict.outcome == "accepted":
            traces[f"{trace_id}/{stage}"] = 0.0
        elif fault is not None and fault.stage == stage:
            lied = lied or not fault.rate
            if fault.rate:
                traces[f"{trace_id}/{stage}"] = fault.rate
    return lied, traces


def _sum(verdicts: Sequence[GroupVerdict], named: Set[int]) -> dict[str, Any]:
    faults = [verdict.fault for verdict in verdicts if verdict.fault]
    told = [f"stage {fault.stage}: {fault.kind}: {fault.evidence}" for fault in faults]
    if named:
        first = next(text for text, fault in zip(told, faults, strict=True) if fault.stage in named)
        return {"status": "reject", "failing_indices": sorted(named), "reason": first[:1000]}
    found: dict[str, Any] = {"failing_indices": []}
    if all(verdict.outcome == "accepted" for verdict in verdicts):
        return found | {"status": "accept", "reason": None}
    missing = sorted({stage for verdict in verdicts for stage in verdict.missing})
    whole = [*told, *(reason for verdict in verdicts for reason in verdict.reasons)]
    reason = f"incomplete: no record of stages {missing}" if missing else "; ".join(whole[:5])
    return found | {"status": "unknown", "reason": reason[:1000]}
