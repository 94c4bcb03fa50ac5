"""The trusted side of generate: hand out a shard, take in what comes back, commit it.

Invariants: a row of `traces` is made of the plan (ids, seed, prompt, sampling), of what the node
claims (tokens, log-probabilities, proofs) and of nothing that we can compute ourselves; a row whose
claims cannot be a sample, or are not what the node that held the job signed, is quarantined, the
others go on; a file that is not what was asked for is refused as a whole.
"""

import hashlib
import io
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from data_contracts import generate as contract
from data_contracts.ids import canonical_json, model_slug
from data_contracts.report import split
from data_contracts.text import clean_text, table_from_rows
from infra.inference.prompts import ChatTokenizer, StopWatcher
from infra.pool import Job, JobResult
from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.quarantine import quarantine_rows
from infra.storage.reconcile import StageCount, check
from infra.storage.shards import Manifest, commit_table
from tasks.generate import upload
from tasks.generate.config import ModelUse
from tasks.generate.errors import UploadRejected
from tasks.generate.plan import Shard
from toploc.transcript import Transcript

MAX_ERROR_CHARS = 2000
MAX_ENGINE_CHARS = 64


class PromptBook:
    """Prompt ids of tasks for one model, rendered once."""

    def __init__(self, tokenizer: ChatTokenizer, prompts: Mapping[str, list[dict[str, str]]]):
        self.tokenizer = tokenizer
        self._prompts = prompts
        self._ids: dict[str, list[int]] = {}

    def ids(self, task_id: str) -> list[int]:
        """The prompt of a task with the generation prompt, as token ids."""
        if task_id not in self._ids:
            self._ids[task_id] = self.tokenizer.render(self._prompts[task_id])[0]
        return self._ids[task_id]


def generate_job(shard: Shard, use: ModelUse, revision: str, book: PromptBook) -> Job:
    """What a node gets to know of a shard."""
    return Job(
        job_id=f"generate-{shard.shard_id}",
        kind="generate",
        stranger=True,
        like=shard.model,
        payload={
            "model": shard.model,
            "revision": revision,
            "sampling": use.sampling.as_dict(),
            "batches": [
                [
                    {
                        "trace_id": row["trace_id"],
                        "seed": row["seed"],
                        "prompt_ids": book.ids(row["task_id"]),
                    }
                    for row in batch
                ]
                for batch in shard.batches()
            ],
        },
    )


def ingest(
    store: Store,
    layout: RunLayout,
    shard: Shard,
    use: ModelUse,
    revision: str,
    book: PromptBook,
    result: JobResult,
    reader: upload.Reader,
    *,
    producer: str,
) -> Manifest:
    """Check a node's upload and commit it as the shard's traces."""
    slug = model_slug(shard.model)
    claims = _claims(store, shard, result, reader)
    rows, bad = [], []
    for planned in shard.rows:
        claim = claims[planned["trace_id"]]
        problem = impossible(claim, use.sampling.max_tokens)
        if problem:
            bad.append((claim, problem, result.node_id))
            continue
        row = _trace(planned, claim, use, revision, book, result.node_id)
        unsigned = Transcript.of_row(row).faults(row["transcript_hash"], row["signature"])
        if unsigned:
            bad.append((claim, unsigned[0].partition(":")[0], result.node_id))
            continue
        rows.append(row)
    if not rows:
        raise UploadRejected(
            shard.shard_id, result.node_id, f"none of its rows can be taken, the first: {bad[0][1]}"
        )
    table = table_from_rows(rows, contract.SCHEMA)
    good, refused = split(table, contract.validate(table))
    bad += [(rows[number], reason, result.node_id) for number, reason in refused]
    reasons: dict[str, int] = {}
    for _, reason, _ in bad:
        reasons[reason] = reasons.get(reason, 0) + 1
    count = StageCount("generate", len(shard.rows), good.num_rows, len(bad), reasons)
    check(count)
    quarantine_rows(store, layout, "generate", shard.shard_id, bad)
    manifest = commit_table(
        store,
        layout.traces(slug, shard.shard_id),
        good,
        schema=contract.SCHEMA,
        producer=producer,
        info={
            "stage": "generate",
            "model": shard.model,
            "shard": shard.shard_id,
            "counts": count.info(),
            "tokens": sum(len(row["output_ids"]) for row in rows),
            "status": _tally(good.column("status").to_pylist()),
        },
    )
    for file in result.files:
        store.delete(file.path)
    return manifest


def impossible(claim: Mapping[str, Any], max_tokens: int) -> str:
    """Why a row cannot be a sample, or ''. Whether it is an honest one, validate decides."""
    ids, logprobs = claim["output_ids"], claim["logprobs"]
    if claim["status"] not in ("ok", "prompt_too_long", "engine_error"):
        return "unknown_status"
    if claim["finish_reason"] not in ("stop", "length", "error"):
        return "unknown_finish_reason"
    if len(ids) > max_tokens:
        return "too_many_tokens"
    if len(logprobs) != len(ids):
        return "logprobs_do_not_match_tokens"
    if any(token is None or token < 0 for token in ids):
        return "bad_token_id"
    if any(value is None or not math.isfinite(value) or value > 1e-4 for value in logprobs):
        return "bad_logprob"
    if not 0 < len(claim["engine"]) <= MAX_ENGINE_CHARS:
        return "bad_engine"
    if claim["status"] == "ok" and not ids:
        return "ok_without_tokens"
    return ""


def completion_text(
    tokenizer: ChatTokenizer, prompt_ids: list[int], output_ids: list[int], stop: list[str]
) -> str:
    """The text of an output as we read it, whatever a node says."""
    shown = output_ids[:-1] if output_ids and output_ids[-1] in tokenizer.eos_ids else output_ids
    text = StopWatcher(tokenizer, stop).cut(tokenizer.decode(shown))
    return clean_text(tokenizer.opened_prefix(prompt_ids) + text)


def _claims(
    store: Store, shard: Shard, result: JobResult, reader: upload.Reader
) -> dict[str, dict[str, Any]]:
    def refuse(problem: str) -> UploadRejected:
        return UploadRejected(shard.shard_id, result.node_id, problem)

    if len(result.files) != 1:
        raise refuse(f"it has {len(result.files)} files, one is wanted")
    file = result.files[0]
    if file.size > upload.MAX_FILE_BYTES:
        raise refuse(f"it has {file.size} bytes, allowed are {upload.MAX_FILE_BYTES}")
    data = store.read_bytes(file.path)
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise refuse("its sha256 is not the one that the node reported")
    stream, problem = reader.read(data, len(shard.rows))
    if problem:
        raise refuse(problem)
    table: pa.Table = pa.ipc.open_stream(io.BytesIO(stream)).read_all()
    claims = {row["trace_id"]: row for row in table.to_pylist()}
    if claims.keys() != {row["trace_id"] for row in shard.rows}:
        raise refuse("its trace ids are not those of the shard")
    return claims


def _trace(
    planned: Mapping[str, Any],
    claim: Mapping[str, Any],
    use: ModelUse,
    revision: str,
    book: PromptBook,
    node_id: str,
) -> dict[str, Any]:
    prompt_ids = book.ids(planned["task_id"])
    text = ""
    if claim["output_ids"]:
        text = completion_text(book.tokenizer, prompt_ids, claim["output_ids"], use.sampling.stop)
    error = claim["error"]
    return {
        "trace_id": planned["trace_id"],
        "task_id": planned["task_id"],
        "model": planned["model"],
        "model_revision": revision,
        "sample_index": planned["sample_index"],
        "seed": planned["seed"],
        "sampling": canonical_json(use.sampling.as_dict()),
        "prompt_ids": prompt_ids,
        "output_ids": claim["output_ids"],
        "logprobs": claim["logprobs"],
        "completion": text,
        "status": claim["status"],
        "finish_reason": claim["finish_reason"],
        "error": None if error is None else clean_text(error)[:MAX_ERROR_CHARS],
        "proofs": claim["proofs"],
        "stage_proofs": None,
        "transcript_hash": claim["transcript_hash"],
        "signature": claim["signature"],
        "engine": claim["engine"],
        "node_id": node_id,
        "group_id": None,
        "seconds": claim["seconds"],
    }


def _tally(values: list[str]) -> dict[str, int]:
    return {value: values.count(value) for value in sorted(set(values))}
