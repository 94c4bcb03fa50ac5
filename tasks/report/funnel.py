"""The funnel: where every row of a run went, stage by stage and model by model.

Invariants: everything comes from committed manifests and tables, so a run that is still going
gives the funnel of what is done so far, and the same state always gives the same funnel. A planned
shard that a stage has not committed is named, never left out silently; one that is damaged is a
problem and does not count as done.
"""

from collections import Counter

from infra.storage import Manifest, Store, damaged
from infra.storage.layout import RunLayout
from infra.storage.shards import read_manifest, read_table
from tasks.report.errors import NoSuchRun
from tasks.report.model import STAGES, Funnel, StageRow
from tasks.report.outcomes import Outcomes, read_outcomes
from tasks.report.plans import read_plans
from tasks.report.published import read_published
from tasks.report.solve import solve_table
from tasks.report.stages import between_stages, model_stages, pass_mark_of, whole


def funnel(store: Store, layout: RunLayout) -> Funnel:
    """The funnel of a run, finished or not."""
    tasks = read_manifest(store, layout.tasks)
    if tasks is None:
        raise NoSuchRun(layout.run_id, store.uri("runs"), _known_runs(store))
    difficulty = read_manifest(store, layout.difficulty)
    plans = read_plans(store, layout)
    outcomes = read_outcomes(store, layout, plans, pass_mark_of(difficulty))
    publish_row, published, faults = read_published(store, layout)
    faults += outcomes.damaged + _difficulty_faults(store, layout, difficulty)
    stages = [whole("collect", tasks), whole("annotate", difficulty), publish_row]
    for model in plans.models():
        stages += model_stages(model, plans, outcomes)
    # stable: within a stage the models stay in their order
    stages.sort(key=lambda row: STAGES.index(row.stage))
    types = read_table(store, layout.tasks, columns=["task_id", "task_type"]).to_pylist()
    return Funnel(
        run_id=layout.run_id,
        complete=(
            _is_current(publish_row, outcomes)
            and not faults
            and not any(row.missing for row in stages)
        ),
        models=plans.models(),
        stages=tuple(stages),
        solve=solve_table(plans, outcomes, {row["task_id"]: row["task_type"] for row in types}),
        published=published,
        problems=(*_unbalanced(stages), *between_stages(plans, outcomes), *faults),
    )


def write_funnel(store: Store, layout: RunLayout, result: Funnel) -> str:
    """Write funnel.json and return its path."""
    store.write_json(layout.funnel, result.to_json(), overwrite=True)
    return layout.funnel


def _known_runs(store: Store) -> list[str]:
    return sorted({path.split("/")[1] for path in store.list("runs")})


def _difficulty_faults(store: Store, layout: RunLayout, difficulty: Manifest | None) -> list[str]:
    """What is wrong with the difficulty table: its data, or shards it was made without."""
    if difficulty is None:
        return []
    wrong = damaged(store, layout.difficulty)
    faults = [f"annotate: {wrong}"] if wrong else []
    if without := difficulty.info.get("missing_shards"):
        named = ", ".join(without[:5])
        faults.append(f"annotate: made without the rewards of {len(without)} shards ({named})")
    return faults


def _is_current(publish_row: StageRow, outcomes: Outcomes) -> bool:
    """Whether a version is published and no trace was accepted after it."""
    verdicts = Counter(outcomes.accepted.values())
    allowed = (verdicts["accepted"], verdicts.total())
    return publish_row.shards_done == 1 and publish_row.rows_in in allowed


def _unbalanced(stages: list[StageRow]) -> list[str]:
    return [
        f"{row.stage}{f' of {row.model}' if row.model else ''}: {row.rows_in} rows in, but "
        f"{row.rows_out} out, {row.rejected} rejected, {row.unscored} unscored and "
        f"{row.quarantined} quarantined"
        for row in stages
        if not row.balanced
    ]
