"""What becomes of nodes: the ledger's entries for their uploads, and whose work counts.

Invariants: every upload that was looked at leaves a verdict in the ledger, with its reason if it
was refused; a refusal that only a lie explains excludes the node (a slash), one that may be an
accident does not; nothing of an excluded node is taken any more, also after a restart, because the
ledger is what says so.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.pool.ledger import Invalidation, Ledger, Slash, Verdict, Work, entries
from infra.storage import Store

ACCIDENTS = frozenset(
    {"other_files", "upload_missing", "unreadable_upload", "sha256_differs", "no_honest_rows"}
)
"""Reasons that a broken disk or line, or a fault of ours, gives too."""

EXCLUDED = "node_excluded"


@dataclass(frozen=True)
class Counted:
    """What counts of a node's work."""

    files: int
    refused: int


class Standing:
    """The nodes of one run, by the ledger."""

    def __init__(self, store: Store, run_id: str):
        self._ledger = Ledger(store)
        self._run_id = run_id
        self.excluded = {
            entry.record.node_id for entry in entries(store) if isinstance(entry.record, Slash)
        }

    def accepted(self, name: str, node_id: str, files: dict[str, str], seconds: float) -> None:
        """An upload counts; `files` maps its path to its sha256."""
        work = Work(
            task_id=self._run_id,
            shard_id=name,
            nodes=(node_id,),
            files=files,
            seconds=seconds,
        )
        self._ledger.append(work)
        self._ledger.append(
            Verdict(task_id=self._run_id, shard_id=name, nodes=(node_id,), accepted=True)
        )

    def refused(
        self, name: str, node_id: str, reasons: Sequence[str], evidence: dict[str, Any]
    ) -> bool:
        """An upload does not count; its node is excluded, and true returned, if it lied."""
        codes = {reason.partition(":")[0] for reason in reasons}
        accident = codes <= ACCIDENTS
        reason = "; ".join(reasons)[:500]
        self._ledger.append(
            Verdict(
                task_id=self._run_id,
                shard_id=name,
                nodes=(node_id,),
                accepted=False,
                reason=reason,
            )
        )
        self._invalidate(name, node_id, reason, evidence, hard=not accident)
        if not accident and node_id not in self.excluded:
            self._ledger.append(Slash(node_id=node_id, reason=reason, evidence=evidence))
            self.excluded.add(node_id)
        return not accident

    def withdrawn(self, name: str, node_id: str) -> None:
        """A file that was believed unchecked does not count any more: its node was caught."""
        self._invalidate(name, node_id, "node_caught", {}, hard=True)

    def _invalidate(
        self, name: str, node_id: str, reason: str, evidence: dict[str, Any], *, hard: bool
    ) -> None:
        self._ledger.append(
            Invalidation(
                kind="hard_invalidation" if hard else "soft_invalidation",
                task_id=self._run_id,
                shard_id=name,
                nodes=(node_id,),
                reason=reason,
                evidence=evidence,
            )
        )


def counted(store: Store, run_id: str) -> dict[str, Counted]:
    """Node id -> what counts of it in a run. Nothing of an excluded node's work does."""
    works: dict[str, str] = {}
    refused: Counter[str] = Counter()
    excluded: set[str] = set()
    for entry in entries(store):
        record = entry.record
        if isinstance(record, Slash):
            excluded.add(record.node_id)
        elif isinstance(record, Work) and record.task_id == run_id:
            works[record.shard_id] = record.nodes[0]
        elif isinstance(record, Invalidation) and record.task_id == run_id:
            for node_id in record.nodes:
                refused[node_id] += 1
                if works.get(record.shard_id) == node_id:
                    del works[record.shard_id]
    files = Counter(node_id for node_id in works.values() if node_id not in excluded)
    return {
        node_id: Counted(files[node_id], refused[node_id])
        for node_id in {*works.values(), *refused}
    }
