"""Take back what a caught node had been believed.

Invariants: a shard is revoked if it was not audited and after the choice an audit of its node
failed, in any run of the storage root, or the ledger excluded the node; the revocation is committed
(a table of `revoked` verdicts, and the traces in quarantine) before anything is discarded; what
follows from a shard goes before the shard, so that whatever a crash leaves is found again by the
next call. Afterwards the shard is not committed, and its stages make it again.
"""

import json
from collections.abc import Iterable

from data_contracts import validate as contract
from data_contracts.ids import model_slug
from data_contracts.text import table_from_rows
from infra.storage import (
    RunLayout,
    Store,
    commit_table,
    damaged,
    discard,
    list_committed,
    quarantine_rows,
    read_manifest,
    read_table,
)
from tasks.generate.plan import Shard
from tasks.validate.audit import records
from tasks.validate.errors import NothingToRevoke

REASON = "node_caught"
STAGE = "revoke"


def discard_shard(store: Store, layout: RunLayout, slug: str, shard_id: str) -> None:
    """Take back traces, verdicts and rewards of a shard; what depends on another goes first."""
    for path in (layout.rewards, layout.verdicts, layout.traces):
        discard(store, path(slug, shard_id))


def to_revoke(store: Store, layout: RunLayout, shards: Iterable[Shard]) -> list[Shard]:
    """The unaudited shards of nodes that were caught since, in the order given."""
    believed = {
        manifest.path: manifest.info["audit"]
        for manifest in list_committed(store, f"{layout.root}/verdicts")
        if not manifest.info["audit"]["audited"]
    }
    if not believed:
        return []
    failures = records(store).failures
    found = []
    for shard in shards:
        audit = believed.get(layout.verdicts(model_slug(shard.model), shard.shard_id))
        if audit and audit["failures_before"] < failures[audit["node_id"]]:
            found.append(shard)
    return found


def revoke(store: Store, layout: RunLayout, shard: Shard) -> None:
    """Revoke a shard whose verdicts are committed."""
    slug = model_slug(shard.model)
    verdicts = read_manifest(store, layout.verdicts(slug, shard.shard_id))
    if verdicts is None:
        raise NothingToRevoke(layout.verdicts(slug, shard.shard_id))
    audit, shard_id = verdicts.info["audit"], shard.shard_id
    traces = layout.traces(slug, shard_id)
    if not damaged(store, traces):
        rows = read_table(store, traces).to_pylist()
        quarantined = f"{shard_id}-{audit['traces_sha256'][:16]}"
        evidence = [(row, REASON, audit["node_id"]) for row in rows]
        quarantine_rows(store, layout, STAGE, quarantined, evidence)
    rows = read_table(store, verdicts.path).to_pylist()
    taken_back = [
        row
        | {
            "verdict": "revoked",
            "reasons": [f"{REASON}: an audit of node {audit['node_id'][:64]} failed later"],
            "figures": json.dumps({"verdict_before": row["verdict"]}),
        }
        for row in rows
    ]
    commit_table(
        store,
        layout.revoked(slug, shard_id, audit["traces_sha256"]),
        table_from_rows(taken_back, contract.SCHEMA),
        schema=contract.SCHEMA,
        producer=STAGE,
        info={"stage": STAGE, "model": shard.model, "shard": shard_id, "audit": audit},
    )
    discard_shard(store, layout, slug, shard_id)
