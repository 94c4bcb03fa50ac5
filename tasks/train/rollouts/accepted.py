"""The accepted rollouts of a run: committed, remembered, and taken back where they may be.

What was believed without a check is taken back when its node is caught, until it is final: trained
on, or in an evaluation. Invariants: a job has one committed file at most, whoever sends what how
often; what is committed does not change while `steady` is held; nothing counts of a node that was
excluded, also where the run died before it could be taken back.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from data_contracts import rollouts as contract
from infra.storage import (
    Manifest,
    RunLayout,
    Store,
    commit_table,
    discard,
    quarantine_rows,
    read_manifest,
    read_table,
)
from tasks.train.rollouts.copies import KEPT_STEPS, Place, Seen
from tasks.train.rollouts.job import KIND, RolloutJob
from tasks.train.rollouts.standing import Standing


class Accepted:
    """Those of one run."""

    def __init__(
        self,
        store: Store,
        layout: RunLayout,
        standing: Standing,
        folder: Callable[[RolloutJob], str],
        final: Callable[[RolloutJob], bool],
    ):
        """`folder` is where the rollouts of a job lie, `final` whether they stay there."""
        self._store, self._layout, self._standing = store, layout, standing
        self._folder, self._final = folder, final
        self.steady = threading.RLock()
        """Held while rollouts are chosen: nothing is committed or taken back meanwhile."""
        self._seen = Seen()
        self._known: set[str] = set()
        self._unchecked: dict[str, tuple[RolloutJob, str]] = {}
        """By name: jobs whose rollouts were believed without a check, and their nodes."""

    def path(self, job: RolloutJob) -> str:
        """Of the accepted rollouts of a job, without extension."""
        return f"{self._folder(job)}/{job.name}"

    def of(self, job: RolloutJob) -> Manifest | None:
        """The accepted rollouts of a job."""
        with self.steady:
            manifest = read_manifest(self._store, self.path(job))
            if manifest is not None and job.name not in self._known:
                # An earlier part of the run took it.
                self._remember(job, manifest, read_table(self._store, manifest.path).to_pylist())
            if job.name in self._unchecked and not self._final(job):
                node_id = self._unchecked[job.name][1]
                if node_id in self._standing.excluded:
                    # The run died, or its pool was gone, before it was taken back.
                    self._take_back(job, node_id)
                    return None
            return manifest

    def repeated(self, job: RolloutJob, rows: Sequence[Mapping[str, Any]]) -> dict[str, Place]:
        """Sample id -> where its improbable answer was seen before, of the rows for a job."""
        with self.steady:
            return self._seen.repeated(rows, self.path(job))

    def unchecked(self, path: str) -> tuple[RolloutJob, str] | None:
        """Job and node of rollouts that were believed without a check; None: they were not."""
        return self._unchecked.get(path.rpartition("/")[2])

    def commit(
        self,
        job: RolloutJob,
        table: pa.Table,
        rows: Sequence[Mapping[str, Any]],
        info: dict[str, Any],
    ) -> Manifest:
        """Commit the rollouts of a job and remember them; `rows` are those of the table."""
        with self.steady:
            manifest = commit_table(
                self._store,
                self.path(job),
                table,
                schema=contract.SCHEMA,
                producer=KIND,
                info=info,
            )
            self._remember(job, manifest, rows)
        return manifest

    def withdraw(self, node_id: str) -> None:
        """Take back what was believed of a node without a check and is not final yet."""
        with self.steady:
            for job, node in list(self._unchecked.values()):
                if node == node_id:
                    self.take_back(job, node_id)

    def take_back(self, job: RolloutJob, node_id: str) -> None:
        """Take the rollouts of a job back, unless they are final; they were `unchecked`."""
        with self.steady:
            if not self._final(job):
                self._take_back(job, node_id)

    def _take_back(self, job: RolloutJob, node_id: str) -> None:
        path, reason = self.path(job), "node_caught"
        table, manifest = read_table(self._store, path), read_manifest(self._store, path)
        quarantine_rows(
            self._store, self._layout, KIND, f"{job.name}-{reason}",
            [(row, reason, node_id) for row in table.to_pylist()],
        )  # fmt: skip
        files = manifest.info["files"] if manifest else {}
        self._standing.withdrawn(job.name, node_id, files)
        discard(self._store, path)
        self._seen.forget(path)
        del self._unchecked[job.name]
        self._known.discard(job.name)

    def _remember(
        self, job: RolloutJob, manifest: Manifest, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        self._known.add(job.name)
        self._seen.add(rows, manifest.path)
        if not manifest.info["audited"]:
            self._unchecked[job.name] = (job, manifest.info["node_id"])
        for name, (old, _) in list(self._unchecked.items()):
            # No answer of it is remembered any more, and nothing of it can be taken back.
            if old.step <= job.step - KEPT_STEPS and self._final(old):
                del self._unchecked[name]
