"""The flow's side of validate: hand a committed shard to a trusted node, commit its verdicts."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from data_contracts import validate as contract
from data_contracts.errors import TableBlocked
from data_contracts.ids import content_id, model_slug
from data_contracts.text import table_from_rows
from infra.pool import Job, JobResult
from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.reconcile import StageCount, check
from infra.storage.shards import Manifest, commit_table
from tasks.generate.plan import Shard
from tasks.validate.audit import Decision, Finding
from tasks.validate.config import ValidateConfig

ACCEPTED = ("accepted", "accepted_unaudited")


def validator_name(config: ValidateConfig) -> str:
    """Version and limits of the validator, as the verdicts table names it."""
    return f"toploc-v1+sampling@{version('tracemill')}/{content_id(config.model_dump())[:8]}"


def validate_job(
    store: Store, layout: RunLayout, shard: Shard, config: ValidateConfig, audited: bool
) -> Job:
    """The job that judges a committed shard of traces, or only looks it over."""
    return Job(
        job_id=f"validate-{shard.shard_id}",
        kind="validate",
        like=shard.model,
        payload={
            "root": store.root,
            "traces": layout.traces(model_slug(shard.model), shard.shard_id),
            "model": shard.model,
            "config": config.model_dump(),
            "audited": audited,
        },
        # A generated shard is judged while others are still being generated, not after them.
        priority=-1,
    )


def commit_verdicts(
    store: Store,
    layout: RunLayout,
    shard: Shard,
    traces: Manifest,
    result: JobResult,
    config: ValidateConfig,
    decision: Decision,
    *,
    producer: str,
) -> Manifest:
    """Commit the verdicts of a shard; each trace gets exactly one."""
    name = validator_name(config)
    rows: list[dict[str, Any]] = [
        row | {"shard_id": shard.shard_id, "validator": name} for row in result.output["verdicts"]
    ]
    table = table_from_rows(rows, contract.SCHEMA)
    report = contract.validate(table)
    if report.blocking or report.bad_rows:
        # The rows are made on our side: a bad one is our fault, not a row to set aside.
        raise TableBlocked(
            f"verdicts of shard {shard.shard_id}: {report.blocking or report.bad_rows}"
        )
    reasons: dict[str, int] = {}
    for row in rows:
        if row["verdict"] not in ACCEPTED:
            reason = row["reasons"][0].partition(":")[0]
            reasons[reason] = reasons.get(reason, 0) + 1
    refused = sum(reasons.values())
    count = StageCount("validate", traces.rows, len(rows) - refused, refused, reasons)
    check(count)
    return commit_table(
        store,
        layout.verdicts(model_slug(shard.model), shard.shard_id),
        table,
        schema=contract.SCHEMA,
        producer=producer,
        info={
            "stage": "validate",
            "model": shard.model,
            "shard": shard.shard_id,
            "counts": count.info(),
            "verdict": "partly_rejected" if refused else ACCEPTED[not decision.audited],
            "audit": asdict(decision) | Finding.of(rows).info(),
        },
    )
