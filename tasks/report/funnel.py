"""The funnel: where every row of a run went, stage by stage and model by model.

Invariants: everything comes from committed manifests and tables, so a run that is still going
gives the funnel of what is done so far, and the same state always gives the same funnel. A planned
shard that a stage has not committed is named, never left out silently.
"""

from collections import Counter

from infra.storage import Store
from infra.storage.layout import RunLayout
from infra.storage.shards import read_manifest, read_table
from tasks.publish import CONFIGS, receipt_path
from tasks.report.errors import NoSuchRun
from tasks.report.model import STAGES, Funnel, PublishedInfo, StageRow
from tasks.report.outcomes import Outcomes, read_outcomes
from tasks.report.plans import read_plans
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
    publish_row, published = _published(store, layout)
    stages = [whole("collect", tasks), whole("annotate", difficulty), publish_row]
    for model in plans.models():
        stages += model_stages(model, plans, outcomes)
    # stable: within a stage the models stay in their order
    stages.sort(key=lambda row: STAGES.index(row.stage))
    types = read_table(store, layout.tasks, columns=["task_id", "task_type"]).to_pylist()
    return Funnel(
        run_id=layout.run_id,
        complete=_is_current(publish_row, outcomes) and not any(row.missing for row in stages),
        models=plans.models(),
        stages=tuple(stages),
        solve=solve_table(plans, outcomes, {row["task_id"]: row["task_type"] for row in types}),
        published=published,
        problems=(*_unbalanced(stages), *between_stages(plans, outcomes)),
    )


def write_funnel(store: Store, layout: RunLayout, result: Funnel) -> str:
    """Write funnel.json and return its path."""
    store.write_json(layout.funnel, result.to_json(), overwrite=True)
    return layout.funnel


def _known_runs(store: Store) -> list[str]:
    return sorted({path.split("/")[1] for path in store.list("runs")})


def _published(store: Store, layout: RunLayout) -> tuple[StageRow, PublishedInfo | None]:
    """The publish stage: accepted traces in, rows of `full` out."""
    if not store.exists(receipt_path(layout)):
        return whole("publish", None), None
    receipt = store.read_json(receipt_path(layout))
    info = PublishedInfo(
        name=receipt["name"],
        version=receipt["version"],
        path=receipt["path"],
        rows={config: receipt["rows"][config] for config in CONFIGS},
        left_out=receipt["left_out"],
    )
    held_back = info.left_out["full"]
    row = StageRow(
        stage="publish",
        model=None,
        shards_planned=1,
        shards_done=1,
        rows_in=receipt["accepted"],
        rows_out=info.rows["full"],
        unscored=sum(held_back.values()),
        reasons=held_back,
    )
    return row, info


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
