"""Verdicts and rewards of the planned traces, read once for the funnel and the solve table.

Invariant: only committed tables of planned shards count; a damaged one is named and left out.
"""

from collections import Counter
from dataclasses import dataclass, field

from infra.storage import Store
from infra.storage.errors import CorruptShard
from infra.storage.layout import RunLayout
from infra.storage.shards import Manifest, damaged, list_committed, read_manifest, read_table
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
    revoked: Counter[str] = field(default_factory=Counter)
    """Model -> traces that were accepted without an audit until their node was caught."""
    damaged: list[str] = field(default_factory=list)
    """Committed shards whose manifest or data are not what was committed, and why."""

    def accepted_in(self, shard: Shard) -> int:
        """Accepted traces of a shard, with the unaudited ones."""
        return sum(self.verdict_counts[shard][verdict] for verdict in ACCEPTED)


def read_outcomes(store: Store, layout: RunLayout, plans: Plans, pass_mark: float) -> Outcomes:
    """Read the committed verdicts and rewards; traces are only checked."""
    files = {
        name
        for kind in ("traces", "verdicts", "rewards")
        for name in store.list(f"{layout.root}/{kind}")
    }
    outcomes = Outcomes()
    for revocation in list_committed(store, f"{layout.root}/revoked"):
        outcomes.revoked[revocation.info["model"]] += revocation.rows
    for shard in sorted(plans.shards):
        key = (shard.slug, shard.shard_id)
        for stage, path in (
            ("generate", layout.traces(*key)),
            ("validate", layout.verdicts(*key)),
            ("verify", layout.rewards(*key)),
        ):
            # not list_committed: that skips a manifest that cannot be read, here it is named
            if f"{path}.json" not in files:
                continue
            try:
                manifest = read_manifest(store, path)
                if manifest is None:
                    continue
                if stage == "validate":
                    _read_verdicts(store, path, shard, outcomes)
                    outcomes.verdicts[shard] = manifest
                elif stage == "verify":
                    _read_rewards(store, path, shard, outcomes, pass_mark)
                    outcomes.rewards[shard] = manifest
                elif wrong := damaged(store, path):
                    outcomes.damaged.append(f"generate: {wrong}")
                else:
                    outcomes.traces[shard] = manifest
            except CorruptShard as error:
                outcomes.damaged.append(f"{stage}: {error}")
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
