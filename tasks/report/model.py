"""What the funnel says. Plain data: the same run gives the same object and the same JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any

STAGES = ("collect", "generate", "validate", "verify", "annotate", "publish")


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage, for one model where the stage works per model."""

    stage: str
    model: str | None
    shards_planned: int
    shards_done: int
    rows_in: int
    rows_out: int
    quarantined: int = 0
    rejected: int = 0
    unscored: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        """Whether every row that came in is accounted for."""
        return self.rows_in == self.rows_out + self.quarantined + self.rejected + self.unscored

    @property
    def state(self) -> str:
        """`done`, `partial` or `waiting`."""
        if self.shards_done == 0:
            return "waiting"
        return "partial" if self.shards_done < self.shards_planned else "done"


@dataclass(frozen=True, slots=True)
class SolveRow:
    """Answers of one model on one kind of task."""

    task_type: str
    model: str
    planned: int
    accepted: int
    right: int
    wrong: int
    unscored: int

    @property
    def solve_rate(self) -> float | None:
        """Share of right answers among those with a score; None without any."""
        scored = self.right + self.wrong
        return self.right / scored if scored else None


@dataclass(frozen=True, slots=True)
class PublishedInfo:
    """What the run published."""

    name: str
    version: str
    path: str
    rows: dict[str, int]
    left_out: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Funnel:
    """Where every row of a run went."""

    run_id: str
    complete: bool
    models: tuple[str, ...]
    """Annotators first, then the teacher."""
    stages: tuple[StageRow, ...]
    solve: tuple[SolveRow, ...]
    published: PublishedInfo | None
    problems: tuple[str, ...]
    """Counts that do not add up, damaged shards and files; empty in a sound run."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Planned and not committed shards, as stage/model/shard."""
        return tuple(
            f"{row.stage}/{row.model}/{shard}" for row in self.stages for shard in row.missing
        )

    def totals(self) -> tuple[StageRow, ...]:
        """One row per stage, over all models."""
        return tuple(
            _sum(stage, [row for row in self.stages if row.stage == stage])
            for stage in STAGES
            if any(row.stage == stage for row in self.stages)
        )

    def to_json(self) -> dict[str, Any]:
        """JSON form, for funnel.json and `--json`."""
        return {
            "run_id": self.run_id,
            "complete": self.complete,
            "models": list(self.models),
            "stages": [
                asdict(row) | {"state": row.state, "balanced": row.balanced} for row in self.stages
            ],
            "totals": [asdict(row) | {"state": row.state} for row in self.totals()],
            "solve": [asdict(row) | {"solve_rate": row.solve_rate} for row in self.solve],
            "published": None if self.published is None else asdict(self.published),
            "missing": list(self.missing),
            "problems": list(self.problems),
        }


def _sum(stage: str, rows: list[StageRow]) -> StageRow:
    reasons: dict[str, int] = {}
    for row in rows:
        for reason, count in row.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return StageRow(
        stage=stage,
        model=None,
        shards_planned=sum(row.shards_planned for row in rows),
        shards_done=sum(row.shards_done for row in rows),
        rows_in=sum(row.rows_in for row in rows),
        rows_out=sum(row.rows_out for row in rows),
        quarantined=sum(row.quarantined for row in rows),
        rejected=sum(row.rejected for row in rows),
        unscored=sum(row.unscored for row in rows),
        reasons=dict(sorted(reasons.items())),
        missing=tuple(f"{row.model}/{shard}" for row in rows for shard in row.missing),
    )
