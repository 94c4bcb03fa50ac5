"""The generate stage of one run: planned shards in, committed traces out."""

from collections.abc import Mapping, Sequence

from data_contracts.ids import model_slug
from data_contracts.plan import SCHEMA as PLAN_SCHEMA
from infra.inference.prompts import ChatTokenizer
from infra.models.registry import materialise, revision
from infra.pool import JobResult, NodePool
from infra.storage import Manifest, RunLayout, Store, commit_table, read_manifest, read_table
from infra.storage.reconcile import StageCount
from tasks.generate.config import ModelUse
from tasks.generate.errors import NothingToPlan
from tasks.generate.ingest import PromptBook, generate_job, ingest
from tasks.generate.plan import PlanTask, Shard, plan_phase, shards
from tasks.generate.upload import Reader

PRODUCER = "generate"


def commit_plan(
    store: Store,
    layout: RunLayout,
    phase: str,
    tasks: Sequence[PlanTask],
    uses: Sequence[ModelUse],
    run_seed: int,
    first_index: Mapping[str, int],
) -> Manifest:
    """Fix the shards of a phase; a plan that is committed stays."""
    done = read_manifest(store, layout.plan(phase))
    if done is not None:
        return done
    if not tasks:
        raise NothingToPlan(phase)
    revisions = {use.model: revision(use.model) for use in uses}
    plan = plan_phase(tasks, uses, revisions, run_seed, first_index)
    count = StageCount("plan", plan.num_rows, plan.num_rows, 0, {})
    return commit_table(
        store,
        layout.plan(phase),
        plan,
        schema=PLAN_SCHEMA,
        producer=PRODUCER,
        info={"stage": "plan", "phase": phase, "counts": count.info()},
    )


def read_plan(store: Store, layout: RunLayout, phase: str) -> list[Shard]:
    """The shards of a phase; none where it is not planned yet."""
    if read_manifest(store, layout.plan(phase)) is None:
        return []
    return shards(read_table(store, layout.plan(phase)))


class Generator:
    """Generates shards of one phase through a pool of nodes."""

    def __init__(
        self,
        store: Store,
        layout: RunLayout,
        uses: Sequence[ModelUse],
        pool: NodePool,
        reader: Reader,
    ):
        self.store = store
        self.layout = layout
        self._uses = {use.model: use for use in uses}
        self._pool = pool
        self._reader = reader
        self._revisions = {model: revision(model) for model in self._uses}
        table = read_table(store, layout.tasks, columns=["task_id", "prompt"])
        prompts = dict(zip(table["task_id"].to_pylist(), table["prompt"].to_pylist(), strict=True))
        self._books = {
            model: PromptBook(ChatTokenizer(materialise(model), model), prompts)
            for model in self._uses
        }

    def run(self, shard: Shard) -> Manifest:
        """Traces of a shard, generated unless they are committed."""
        done = read_manifest(
            self.store, self.layout.traces(model_slug(shard.model), shard.shard_id)
        )
        if done is not None:
            return done
        use, model = self._uses[shard.model], shard.model
        revision, book = self._revisions[model], self._books[model]
        taken: list[Manifest] = []

        def take_in(result: JobResult) -> None:
            manifest = ingest(
                self.store, self.layout, shard, use, revision, book, result, self._reader,
                producer=PRODUCER,
            )  # fmt: skip
            taken.append(manifest)

        self._pool.submit(generate_job(shard, use, revision, book), take_in).result()
        return taken[-1]
