"""Score the accepted traces of one shard and commit their rewards.

Invariants: every accepted trace gets one reward row, whatever happens to the worker that scores
it; what could not be scored is null with a status, never 0; completions go out in batches, and a
batch whose workers died is scored again row by row, so that a hostile completion harms itself only.
Without a scheduler nothing is committed: the shard fails as a whole and can be scored again.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import asdict
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError
from distributed.comm import CommClosedError

from data_contracts import verify as contract
from data_contracts.errors import TableBlocked
from data_contracts.ids import model_slug
from data_contracts.text import clean_text, table_from_rows
from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.reconcile import StageCount, check
from infra.storage.shards import Manifest, commit_table, read_table
from tasks.generate.plan import Shard
from tasks.verify.config import VerifyConfig
from tasks.verify.errors import SchedulerLost, WorkersLost
from verifiers import is_binary, score_many, task_types

logger = logging.getLogger(__name__)

MAX_DETAIL_CHARS = 1000
LONELY_SECONDS = 180.0
"""So long a cluster may be without any worker; one that died is usually replaced in seconds."""
_LOOK_SECONDS = 10.0


def verify_shard(
    store: Store,
    layout: RunLayout,
    shard: Shard,
    tasks: Mapping[str, Mapping[str, Any]],
    client: Client,
    config: VerifyConfig,
    *,
    allow_unaudited: bool,
    producer: str,
) -> Manifest:
    """Rewards of a shard's accepted traces; `tasks` maps task ids to rows of the tasks table.

    Traces that were not audited are scored only where they may be published too.
    """
    slug = model_slug(shard.model)
    verdicts = read_table(
        store, layout.verdicts(slug, shard.shard_id), columns=["trace_id", "verdict"]
    ).to_pylist()
    allowed = ("accepted", "accepted_unaudited") if allow_unaudited else ("accepted",)
    accepted = {row["trace_id"] for row in verdicts if row["verdict"] in allowed}
    traces = [
        row
        for row in read_table(
            store,
            layout.traces(slug, shard.shard_id),
            columns=["trace_id", "task_id", "model", "completion"],
        ).to_pylist()
        if row["trace_id"] in accepted
    ]
    questions = [
        {
            "task_type": tasks[row["task_id"]]["task_type"],
            "completion": row["completion"],
            "verification_info": tasks[row["task_id"]]["verification_info"],
        }
        for row in traces
    ]
    scores = score_over_dask(questions, client, config.batch_rows)
    rows = [
        {
            "trace_id": trace["trace_id"],
            "task_id": trace["task_id"],
            "model": trace["model"],
            "status": score["status"],
            "verifier": score["verifier"],
            "verifier_config": score["verifier_config"],
            "detail": clean_text(score["detail"])[:MAX_DETAIL_CHARS],
            "score": score["score"],
            "binary": score["binary"],
            "seconds": score["seconds"],
        }
        for trace, score in zip(traces, scores, strict=True)
    ]
    table = table_from_rows(rows, contract.SCHEMA)
    report = contract.validate(table)
    if report.blocking or report.bad_rows:
        # The rows are made on our side: a bad one is our fault, not a row to set aside.
        raise TableBlocked(
            f"rewards of shard {shard.shard_id}: {report.blocking or report.bad_rows}"
        )
    count = StageCount("verify", len(accepted), len(rows), 0, {})
    check(count)
    statuses = [row["status"] for row in rows]
    return commit_table(
        store,
        layout.rewards(slug, shard.shard_id),
        table,
        schema=contract.SCHEMA,
        producer=producer,
        info={
            "stage": "verify",
            "model": shard.model,
            "shard": shard.shard_id,
            "counts": count.info(),
            "status": {status: statuses.count(status) for status in sorted(set(statuses))},
        },
    )


def score_over_dask(
    questions: Sequence[dict[str, Any]], client: Client, batch_rows: int
) -> list[dict[str, Any]]:
    """One score per question, in order."""
    batches = [
        list(questions[first : first + batch_rows])
        for first in range(0, len(questions), batch_rows)
    ]
    scores: list[dict[str, Any]] = []
    try:
        futures = client.map(score_batch, batches, pure=False)
        for batch, future in zip(batches, futures, strict=True):
            try:
                scores += _result(future, client)
            except KilledWorker as error:
                logger.warning("a batch of %d answers is scored one by one: %s", len(batch), error)
                scores += [_score_alone(question, client) for question in batch]
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise SchedulerLost(error) from error
    return scores


def score_batch(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Scores as plain dicts; runs on a Dask worker."""
    return [asdict(score) for score in score_many(questions, workers=1)]


def _result(future: Future, client: Client) -> list[dict[str, Any]]:
    """The scores of a future; WorkersLost when no worker is there to make them."""
    seen = time.monotonic()
    while True:
        try:
            scores: list[dict[str, Any]] = future.result(timeout=_LOOK_SECONDS)
            return scores
        except TimeoutError:
            if future.done():
                raise
        if client.nthreads():
            seen = time.monotonic()
        elif time.monotonic() - seen > LONELY_SECONDS:
            raise WorkersLost(LONELY_SECONDS)


def _score_alone(question: dict[str, Any], client: Client) -> dict[str, Any]:
    future = client.submit(score_batch, [question], pure=False)
    try:
        result = _result(future, client)
    except KilledWorker as error:
        return {
            "score": None,
            "status": "verifier_error",
            "verifier": "none@0",
            "verifier_config": "",
            "detail": f"every worker that scored this answer died: {error}"[:MAX_DETAIL_CHARS],
            "binary": question["task_type"] in task_types() and is_binary(question["task_type"]),
            "seconds": 0.0,
        }
    return result[0]
