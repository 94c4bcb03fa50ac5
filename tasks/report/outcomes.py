"""Verdicts and rewards of the planned traces, read once for the funnel and the solve table.

Invariant: only committed tables of planned shards count.
"""

from collections import Counter
from dataclasses import dataclass, field

from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.shards import Manifest, list_committed, read_table
from tasks.annotate.difficulty import passed
from tasks.report.plans import Plans, Shard

ACCEPTED = ("accepted", "accepted_unaudited")


@dataclass(slots=True)
class Outcomes:
    """What is committed for each planned shard, and what became of each trace."""

    traces: dict[Shard, Manifest] = field(default_factory=dict)
    verdicts: dict[Shard, Manifest] = field(default_factory=dict)
    rewards: dict[Shard, Manifest] = field(default_factory=dict)
    verdict_counts: dict[Shard, Counter[str]] = field(default_factory=dict)
    """Per shard: `accepted`, `rejected:<reason>` and so on -> traces."""
    reward_counts: dict[Shard, Counter[str]] = field(default_factory=dict)
    """Per shard: reward status -> traces."""
    accepted: dict[str, str] = field(default_factory=dict)
    """Id of an accepted trace -> `accepted` or `accepted_unaudited`."""
    scored: dict[str, str] = field(default_factory=dict)
    """Trace id -> right, wrong or unscored."""

    def accepted_in(self, shard: Shard) -> int:
        """Accepted traces of a shard, with the unaudited ones."""
        return sum(self.verdict_counts[shard][verdict] for verdict in ACCEPTED)


def read_outcomes(store: Store, layout: RunLayout, plans: Plans, pass_mark: float) -> Outcomes:
    """Read the committed verdicts and rewards; of traces only the manifests."""
    traces, verdicts, rewards = (
        {manifest.path: manifest for manifest in list_committed(store, f"{layout.root}/{kind}")}
        for kind in ("traces", "verdicts", "rewards")
    )
    outcomes = Outcomes()
    for shard in sorted(plans.shards):
        key = (shard.slug, shard.shard_id)
        if manifest := traces.get(layout.traces(*key)):
            outcomes.traces[shard] = manifest
        if manifest := verdicts.get(layout.verdicts(*key)):
            outcomes.verdicts[shard] = manifest
            _read_verdicts(store, manifest.path, shard, outcomes)
        if manifest := rewards.get(layout.rewards(*key)):
            outcomes.rewards[shard] = manifest
            _read_rewards(store, manifest.path, shard, outcomes, pass_mark)
    return outcomes


def reason_code(reason: str) -> str:
    """The part of a reason that does not carry figures, so that equal faults count together."""
    return reason.split(":")[0].strip()[:60] or "no_reason"


def _read_verdicts(store: Store, path: str, shard: Shard, outcomes: Outcomes) -> None:
    counts: Counter[str] = Counter()
    for row in read_table(store, path, columns=["trace_id", "verdict", "reasons"]).to_pylist():
        if row["verdict"] in ACCEPTED:
            outcomes.accepted[row["trace_id"]] = row["verdict"]
            counts[row["verdict"]] += 1
        else:
            first = row["reasons"][0] if row["reasons"] else ""
            counts[f"{row['verdict']}:{reason_code(first)}"] += 1
    outcomes.verdict_counts[shard] = counts


def _read_rewards(
    store: Store, path: str, shard: Shard, outcomes: Outcomes, pass_mark: float
) -> None:
    counts: Counter[str] = Counter()
    columns = ["trace_id", "score", "binary", "status"]
    for row in read_table(store, path, columns=columns).to_pylist():
        counts[row["status"]] += 1
        if row["score"] is None:
            outcomes.scored[row["trace_id"]] = "unscored"
        else:
            right = passed(row["score"], row["binary"], pass_mark)
            outcomes.scored[row["trace_id"]] = "right" if right else "wrong"
    outcomes.reward_counts[shard] = counts
