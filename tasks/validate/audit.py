"""Which shards of a run are checked, and what follows when a node is caught.

Invariants: a shard is chosen after its traces were committed, by a secret that nodes never see; the
choice is written down before anything else happens, so a resumed run keeps it. A node's record is
a function of what lies below the storage root alone: how many audits of it failed in any run, how
often the ledger excludes it, its honest audited shards since, and how many of its traces limits
refused. A verdict says how many failures there were when the shard was chosen; unaudited ones from
before a failure are to be revoked. A node is caught at what only a lie explains, or at more
refusals by limits than an honest node ever has; one such refusal is no lie.
"""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from infra.pool.ledger import Slash, entries
from infra.storage import Manifest, RunLayout, Store, list_committed
from infra.storage.errors import NotFound
from infra.storage.secret import shared_secret
from tasks.validate.check import RATE
from tasks.validate.config import AuditConfig
from toploc.audit import draw
from toploc.record import Record

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


@dataclass(frozen=True)
class Finding:
    """What the verdicts of one shard say of its node."""

    lies: int
    """Traces that only a lie explains."""
    doubtful: int
    """Traces that failed outside of what calibration has seen."""
    accepted: int
    """Traces that were accepted on sight."""
    beyond: Mapping[str, float]
    """Traces that limits refused, which refuse honest ones too: the share of those."""

    @classmethod
    def of(cls, verdicts: Sequence[Mapping[str, Any]]) -> "Finding":
        """`verdicts` are rows with their figures."""
        lies = doubtful = accepted = 0
        beyond = {}
        for row in verdicts:
            accepted += row["verdict"] == "accepted"
            if row["verdict"] != "rejected" or _codes(row) <= NO_LIE:
                continue
            figures = json.loads(row["figures"])
            if figures.get("soft"):
                doubtful += 1
            elif rate := figures.get(RATE):
                beyond[row["trace_id"]] = rate
            else:
                lies += 1
        return cls(lies, doubtful, accepted, beyond)

    @property
    def failed(self) -> bool:
        """Whether the audit went against the node: nothing of it is believed without a look.

        So it does where a trace failed outside of calibration, else naming an unknown processor
        would make lies free, and where limits refused one; neither proves a lie.
        """
        return bool(self.lies or self.doubtful or self.beyond)

    def info(self) -> dict[str, Any]:
        """For the manifest of the verdicts."""
        return {"failed": self.failed, "accepted": self.accepted, "beyond": dict(self.beyond)}


def _codes(row: Mapping[str, Any]) -> set[str]:
    return {reason.partition(":")[0] for reason in row["reasons"]}


@dataclass(frozen=True)
class Records:
    """What is known of nodes."""

    failures: Counter[str] = field(default_factory=Counter)
    """By node: failed audits, and exclusions by the ledger."""
    honest: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By node, and by its failures when they were chosen: audits that went well."""
    accepted: Counter[str] = field(default_factory=Counter)
    """By node: traces that were accepted on sight."""
    beyond: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """By node: its traces that limits refused, each once, and the rate of those limits."""

    def note(self, verdicts: Manifest) -> None:
        """Take committed verdicts into account."""
        audit = verdicts.info["audit"]
        if not audit["audited"]:
            return
        node_id = audit["node_id"]
        if audit["failed"]:
            self.failures[node_id] += 1
        else:
            self.honest[node_id, audit["failures_before"]] += 1
        self.accepted[node_id] += audit.get("accepted", 0)
        self.beyond[node_id] |= audit.get("beyond", {})

    def prove_lies(self, node_id: str, finding: Finding) -> bool:
        """Whether a node lied, by what was found now and what is known of it."""
        beyond = self.beyond.get(node_id, {}) | dict(finding.beyond)
        judged = self.accepted[node_id] + finding.accepted + len(beyond)
        known = Record(judged, len(beyond), max(beyond.values(), default=0.0))
        return finding.lies > 0 or (bool(finding.beyond) and known.proves_lies())


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
        else:
            # No rate depends on the past: what this run has seen is enough to judge by.
            for manifest in list_committed(store, f"{layout.root}/verdicts"):
                self.records.note(manifest)

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

    def proves_lies(self, node_id: str, finding: Finding) -> bool:
        """Whether a shard shows that its node lied, by itself or with those noted before."""
        with self._lock:
            return self.records.prove_lies(node_id, finding)

    def note(self, verdicts: Manifest) -> None:
        """Take committed verdicts into the record of their node."""
        with self._lock:
            self.records.note(verdicts)
