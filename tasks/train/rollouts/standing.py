"""What becomes of nodes: who is excluded, and what is taken back of them.

The pool books each upload once, as work and with the verdict of the intake, and a node that was
caught as excluded (a slash). Invariants: a refusal that only a lie explains excludes the node, one
that may be an accident does not; nothing of an excluded node is taken any more, also after a
restart, because the ledger is what says so; accepted work that is taken back later has an entry of
its own.
"""

from collections.abc import Mapping, Sequence

from infra.pool.ledger import Invalidation, Ledger, Slash, entries
from infra.storage import Store

ACCIDENTS = frozenset(
    {
        "other_files",
        "upload_missing",
        "unreadable_upload",
        "sha256_differs",
        "no_honest_rows",
        "too_many_failed",
    }
)
"""Reasons that a broken disk or line, or a fault of ours, gives too."""

EXCLUDED = "node_excluded"


class Standing:
    """The nodes of one run, by the ledger."""

    def __init__(self, store: Store, run_id: str):
        self._ledger = Ledger(store)
        self._run_id = run_id
        self.excluded = {
            entry.record.node_id for entry in entries(store) if isinstance(entry.record, Slash)
        }

    def withdrawn(self, name: str, node_id: str, files: Mapping[str, str]) -> None:
        """Accepted rollouts count no more, as their node was caught; `files` as in its work."""
        self._ledger.append(
            Invalidation(
                kind="hard_invalidation",
                task_id=self._run_id,
                shard_id=name,
                nodes=(node_id,),
                reason="node_caught",
                evidence={"files": dict(files)},
            )
        )


def is_lie(reasons: Sequence[str]) -> bool:
    """Whether only a lie explains the reasons of a refusal."""
    return not {reason.partition(":")[0] for reason in reasons} <= ACCIDENTS
