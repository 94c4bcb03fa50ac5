"""Which shards of a run are checked, and what follows when a node is caught.

Invariants: a shard is chosen after its traces were committed, by a secret that nodes never see; the
choice is written down before anything else happens, so a resumed run keeps it. A node's record is
a function of what lies below the storage root alone: how many audits of it failed in any run, how
often the ledger excludes it, and its honest audited shards since. A verdict says how many failures
there were when the shard was chosen; unaudited ones from before a failure are to be revoked.
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from infra.pool.ledger import Slash, entries
from infra.storage import Manifest, RunLayout, Store, list_committed
from infra.storage.errors import NotFound
from infra.storage.secret import shared_secret
from tasks.validate.config import AuditConfig
from toploc.audit import draw

SECRET = "audit.key"

NO_LIE = frozenset({"prompt_too_long", "engine_error"})
"""Reasons of rejection that are not held against a node."""


@dataclass(frozen=True)
class Decision:
    """Whether a shard is checked."""

    node_id: str
    traces_sha256: str
    """Hash of the traces that were committed when it was taken."""
    failures_before: int
    """How many audits of the node had failed by then."""
    rate: float
    audited: bool


def failed(verdicts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an audit went against the node: nothing of it is believed without a look any more."""
    return any(_fault(row) for row in verdicts)


def caught(verdicts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether verdicts of a shard (with their figures) show that its node lied.

    A trace that failed outside of what calibration has seen fails the audit, else naming an unknown
    processor would make lies free; but it proves no lie.
    """
    return any(_fault(row) and not json.loads(row["figures"]).get("soft") for row in verdicts)


def _fault(row: Mapping[str, Any]) -> bool:
    codes = {reason.partition(":")[0] for reason in row["reasons"]}
    return bool(row["verdict"] == "rejected") and not codes <= NO_LIE


@dataclass(frozen=True)
class Records:
    """What is known of nodes."""

    failures: Counter[str] = field(default_factory=Counter)
    """By node: failed audits, and exclusions by the ledger."""
    honest: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By node, and by its failures when they were chosen: audits that went well."""

    def note(self, verdicts: Manifest) -> None:
        """Take committed verdicts into account."""
        audit = verdicts.info["audit"]
        if not audit["audited"]:
            return
        if audit["failed"]:
            self.failures[audit["node_id"]] += 1
        else:
            self.honest[audit["node_id"], audit["failures_before"]] += 1


def records(store: Store) -> Records:
    """Those of all nodes that any run below the root has had, and of those that were excluded."""
    found = Records()
    for run_id in sorted({path.split("/")[1] for path in store.list("runs")}):
        for manifest in list_committed(store, f"{RunLayout(run_id).root}/verdicts"):
            found.note(manifest)
    for entry in entries(store):
        if isinstance(entry.record, Slash):
            found.failures[entry.record.node_id] += 1
    return found


class Auditor:
    """Decides for the shards of one run, by what its nodes did in all runs of the storage root."""

    def __init__(self, store: Store, layout: RunLayout, config: AuditConfig):
        self._store = store
        self._layout = layout
        self._policy = config.policy()
        self._lock = threading.Lock()
        self.records = Records()
        self._key = b""
        if config.floor < 1.0:
            self._key = shared_secret(SECRET, store)
            self.records = records(store)

    def decide(self, slug: str, shard_id: str, traces: Manifest, node_id: str) -> Decision:
        """The decision on a shard whose traces are committed; one that was taken stands."""
        if not self._key:
            return Decision(node_id, traces.sha256, 0, 1.0, True)
        path = f"{self._layout.audit(slug, shard_id)}.json"
        with self._lock:
            try:
                taken = Decision(**self._store.read_json(path))
            except NotFound:
                pass
            else:
                if taken.traces_sha256 == traces.sha256:
                    return taken
            times = self.records.failures[node_id]
            rate = self._policy.rate(self.records.honest[node_id, times])
            chosen = draw(self._key, shard_id, traces.sha256) < rate
            decision = Decision(node_id, traces.sha256, times, rate, chosen)
            self._store.write_json(path, asdict(decision), overwrite=True)
            return decision

    def note(self, verdicts: Manifest) -> None:
        """Take committed verdicts into the record of their node."""
        with self._lock:
            self.records.note(verdicts)
