"""The planned traces of a run: what the funnel measures the committed shards against."""

from collections import defaultdict
from dataclasses import dataclass, field

from data_contracts.ids import model_slug
from infra.storage import Store
from infra.storage.layout import PHASES, RunLayout
from infra.storage.shards import read_manifest, read_table


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """One planned shard."""

    model: str
    shard_id: str

    @property
    def slug(self) -> str:
        """The model as a path segment."""
        return model_slug(self.model)


@dataclass(slots=True)
class Plans:
    """Planned traces over both phases; a trace that both phases plan is there once."""

    traces: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Trace id -> (task_id, model)."""
    shards: dict[Shard, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Shard -> its trace ids."""
    phases: dict[str, set[str]] = field(default_factory=dict)
    """Phase -> models, for the phases that are planned already."""

    def models(self) -> tuple[str, ...]:
        """Models in the order in which the run uses them, by name within a phase."""
        ordered = [model for phase in PHASES for model in sorted(self.phases.get(phase, ()))]
        return tuple(dict.fromkeys(ordered))


def read_plans(store: Store, layout: RunLayout) -> Plans:
    """Read the plans that are committed."""
    plans = Plans()
    for phase in PHASES:
        if read_manifest(store, layout.plan(phase)) is None:
            continue
        table = read_table(
            store, layout.plan(phase), columns=["trace_id", "task_id", "model", "shard_id"]
        )
        models: set[str] = set()
        for row in table.to_pylist():
            plans.traces[row["trace_id"]] = (row["task_id"], row["model"])
            plans.shards[Shard(row["model"], row["shard_id"])].add(row["trace_id"])
            models.add(row["model"])
        plans.phases[phase] = models
    return plans
