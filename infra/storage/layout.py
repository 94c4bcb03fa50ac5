"""Where a run keeps its tables: the only place that knows path names.

Invariants: every path is relative to the store's root and made of checked segments, so that no
id from outside can lead elsewhere. Paths of tables have no extension.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infra.storage.errors import BadPath

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SEGMENT = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]{0,199}")
PHASES = ("annotators", "teacher")


def segment(value: str, what: str) -> str:
    """`value` if it can be one path segment."""
    if SEGMENT.fullmatch(value) is None:
        raise BadPath(
            f"{what} {value[:80]!r} cannot be part of a path; allowed are 1 to 200 letters, "
            "digits and ._@+=- with no dot in front. Use model_slug() for a model id"
        )
    return value


@dataclass(frozen=True)
class RunLayout:
    """Paths of one run."""

    run_id: str

    def __post_init__(self) -> None:
        if RUN_ID.fullmatch(self.run_id) is None:
            raise BadPath(
                f"run id {self.run_id[:80]!r}: allowed are 1 to 64 letters, digits, dots, "
                "underscores and dashes, with a letter or digit in front. Choose another --run-id"
            )

    @property
    def root(self) -> str:
        """Directory of the run."""
        return f"runs/{self.run_id}"

    @property
    def run_toml(self) -> str:
        """Resolved config, code version, seeds."""
        return f"{self.root}/run.toml"

    @property
    def tasks(self) -> str:
        """Tasks table."""
        return f"{self.root}/tasks/part-00000"

    def plan(self, phase: str) -> str:
        """Plan table of one phase."""
        if phase not in PHASES:
            raise BadPath(f"plan phase {phase!r} is unknown; there are {list(PHASES)}")
        return f"{self.root}/plan/{phase}"

    def upload(self, slug: str, shard: str) -> str:
        """Where a node may write its traces of a shard; nothing here is trusted."""
        return self._shard("uploads", slug, shard)

    def received(self, slug: str, shard: str) -> str:
        """Rows of an upload that is being looked at, as they came."""
        return self._shard("received", slug, shard)

    def traces(self, slug: str, shard: str) -> str:
        """Traces table of a shard."""
        return self._shard("traces", slug, shard)

    def verdicts(self, slug: str, shard: str) -> str:
        """Verdicts table of a shard."""
        return self._shard("verdicts", slug, shard)

    def rewards(self, slug: str, shard: str) -> str:
        """Rewards table of a shard."""
        return self._shard("rewards", slug, shard)

    def audit(self, slug: str, shard: str) -> str:
        """Whether a shard is audited, as it was decided (JSON, no extension)."""
        return self._shard("audits", slug, shard)

    def revoked(self, slug: str, shard: str, traces_sha256: str) -> str:
        """Verdicts that revoke the traces that a shard once had."""
        return self._shard("revoked", slug, f"{shard}-{traces_sha256[:16]}")

    @property
    def difficulty(self) -> str:
        """Difficulty table."""
        return f"{self.root}/difficulty/part-00000"

    def quarantine(self, stage: str, shard: str) -> str:
        """Quarantine table of a shard at a stage."""
        return self._shard("quarantine", stage, shard)

    @property
    def funnel(self) -> str:
        """Row counts of every stage."""
        return f"{self.root}/funnel.json"

    @property
    def report(self) -> str:
        """The HTML report."""
        return f"{self.root}/report/index.html"

    def _shard(self, kind: str, group: str, shard: str) -> str:
        return f"{self.root}/{kind}/{segment(group, 'group')}/{segment(shard, 'shard')}"
