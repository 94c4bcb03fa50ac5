"""Counts of each stage, out of what it committed.

A stage notes rows_in, rows_out, quarantined and the reasons of quarantine in `info["counts"]`, and
may note in `info["status"]` what became of the rows that it wrote. Verdicts and rewards have a row
for every trace that came in: which of them are rejected or unscored is counted in the rows.
"""

from collections import Counter
from typing import Any

from infra.storage.shards import Manifest
from tasks.annotate.config import PASS_MARK
from tasks.report.model import StageRow
from tasks.report.outcomes import Outcomes
from tasks.report.plans import Plans, Shard

UNSCORED = ("unverifiable", "verifier_error")


def counts_of(manifest: Manifest) -> dict[str, Any]:
    """The counts that the stage noted; a manifest without them says only how many rows it has."""
    noted: dict[str, Any] = manifest.info.get("counts", {})
    plain = {"rows_in": manifest.rows, "rows_out": manifest.rows, "quarantined": 0, "reasons": {}}
    return plain | noted


def reasons_of(manifest: Manifest) -> Counter[str]:
    """Reasons of quarantine and status of rows, as the stage noted them."""
    return Counter(counts_of(manifest)["reasons"]) + Counter(manifest.info.get("status", {}))


def pass_mark_of(difficulty: Manifest | None) -> float:
    """The pass mark that the run's annotate stage used, or the usual one before it ran."""
    config = {} if difficulty is None else difficulty.info.get("config", {})
    return float(config.get("pass_mark", PASS_MARK))


def whole(stage: str, manifest: Manifest | None) -> StageRow:
    """A stage that commits one table for the run."""
    if manifest is None:
        return StageRow(stage, None, shards_planned=1, shards_done=0, rows_in=0, rows_out=0)
    counts = counts_of(manifest)
    return StageRow(
        stage=stage,
        model=None,
        shards_planned=1,
        shards_done=1,
        rows_in=counts["rows_in"],
        rows_out=counts["rows_out"],
        quarantined=counts["quarantined"],
        reasons=dict(sorted(reasons_of(manifest).items())),
    )


def model_stages(model: str, plans: Plans, outcomes: Outcomes) -> list[StageRow]:
    """generate, validate and verify of one model."""
    shards = sorted(shard for shard in plans.shards if shard.model == model)
    reasons = {shard: reasons_of(manifest) for shard, manifest in outcomes.traces.items()}
    rejected = {
        shard: manifest.rows - outcomes.accepted_in(shard)
        for shard, manifest in outcomes.verdicts.items()
    }
    unscored = {
        shard: sum(counts[status] for status in UNSCORED)
        for shard, counts in outcomes.reward_counts.items()
    }
    validated = _sum_shards(
        "validate", shards, outcomes.verdicts, outcomes.verdict_counts, rejected=rejected
    )
    if revoked := outcomes.revoked[model]:
        # These traces are in no other count: they were taken back, and their shards made again.
        validated.reasons["revoked:node_caught"] = revoked
    return [
        _sum_shards("generate", shards, outcomes.traces, reasons),
        validated,
        _sum_shards("verify", shards, outcomes.rewards, outcomes.reward_counts, unscored=unscored),
    ]


def _sum_shards(
    stage: str,
    shards: list[Shard],
    committed: dict[Shard, Manifest],
    reasons: dict[Shard, Counter[str]],
    rejected: dict[Shard, int] | None = None,
    unscored: dict[Shard, int] | None = None,
) -> StageRow:
    done = [shard for shard in shards if shard in committed]
    all_reasons: Counter[str] = Counter()
    for shard in done:
        all_reasons.update(reasons[shard])
    lost = {
        "rejected": sum((rejected or {}).get(shard, 0) for shard in done),
        "unscored": sum((unscored or {}).get(shard, 0) for shard in done),
    }
    return StageRow(
        stage=stage,
        model=shards[0].model,
        shards_planned=len(shards),
        shards_done=len(done),
        rows_in=sum(counts_of(committed[shard])["rows_in"] for shard in done),
        rows_out=sum(committed[shard].rows for shard in done) - sum(lost.values()),
        # validate notes what it rejects as quarantined; those rows are in its table
        quarantined=sum(
            counts_of(committed[shard])["quarantined"] for shard in done if stage == "generate"
        ),
        reasons=dict(sorted(all_reasons.items())),
        missing=tuple(shard.shard_id for shard in shards if shard not in committed),
        **lost,
    )


def between_stages(plans: Plans, outcomes: Outcomes) -> list[str]:
    """Shards where one stage's rows out are not the next one's rows in."""
    problems = []
    for shard in sorted(plans.shards):
        where = f"shard {shard.model}/{shard.shard_id}"
        traces, verdicts = outcomes.traces.get(shard), outcomes.verdicts.get(shard)
        rewards = outcomes.rewards.get(shard)
        planned = len(plans.shards[shard])
        if traces and (got := counts_of(traces)["rows_in"]) != planned:
            problems.append(f"{where}: {planned} traces planned, generate took {got}")
        if traces and verdicts and (got := counts_of(verdicts)["rows_in"]) != traces.rows:
            problems.append(f"{where}: generate wrote {traces.rows} traces, validate took {got}")
        if verdicts and rewards:
            got, accepted = counts_of(rewards)["rows_in"], outcomes.accepted_in(shard)
            # traces that were not audited are scored only where the profile allows them
            if got not in (accepted, outcomes.verdict_counts[shard]["accepted"]):
                problems.append(f"{where}: validate accepted {accepted} traces, verify took {got}")
    return problems
