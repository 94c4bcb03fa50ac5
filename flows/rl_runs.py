"""RL runs: their record, their tasks, what the rounds get from their config.

Invariant: `rl.toml` is written once, before anything else of the run, and only a run that trains
the same goes on (resources may change); the version of the dataset that its tasks come from is
written down at the first start. What takes seconds to import is imported where it is used: before
a config is refused nothing else is needed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.errors import FlowError
from flows.profiles import load_profile
from flows.rl_config import RESOURCES, RlConfig
from flows.runs import bind
from infra.storage import RunLayout, Store
from tasks.report.funnel import funnel
from tasks.train.rounds.layout import RlLayout
from tasks.train.trainer.config import FREE

if TYPE_CHECKING:
    from tasks.train.rounds.session import Rounds
    from tasks.train.rounds.tasks import TaskSplit


@dataclass(frozen=True)
class RlRun:
    """A run of rounds that may go on."""

    config: RlConfig
    store: Store
    layout: RlLayout

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.layout.run.run_id


class TasksNotPublished(FlowError):
    """The run that was to publish the tasks did not."""

    def __init__(self, profile: str, run_id: str):
        super().__init__(
            f"run {run_id!r} of profile {profile!r} ended without a published dataset; "
            f"`tracemill status {run_id}` says what is missing. Start it again, or name a dataset "
            "with --set tasks.dataset=..."
        )


def open_rl(config: RlConfig, run_id: str) -> RlRun:
    """Start a run, or go on with it if it has the same config."""
    store, layout = Store(config.storage.root), RlLayout(RunLayout(run_id))
    bind(store, run_id, layout.record, config.dump(), _decisive)
    return RlRun(config, store, layout)


def _decisive(config: dict[str, Any]) -> dict[str, Any]:
    """What may not change when a run goes on."""
    kept = {key: value for key, value in config.items() if key not in RESOURCES}
    trainer = config.get("trainer", {})
    return kept | {"trainer": {key: trainer[key] for key in trainer if key not in FREE}}


def dataset_of(run: RlRun) -> str:
    """The dataset of a run: the one that its config names, or one that is published for it."""
    from tasks.train.rounds.tasks import version_of

    path = f"{run.layout.root}/dataset.json"
    if not run.store.exists(path):
        dataset = run.config.tasks.dataset or publish_tasks(run)
        run.store.write_json(path, {"dataset": version_of(dataset)})
    return str(run.store.read_json(path)["dataset"])


def publish_tasks(run: RlRun) -> str:
    """Publish tasks by the profile that the config names, once for all runs of a storage root."""
    from flows.run import run as run_flow

    profile = run.config.tasks.profile
    config = load_profile(profile, [f"storage.root={run.config.storage.root}"])
    layout = RunLayout(f"{profile}-{config.content_hash()[:8]}")
    if not run.store.exists(layout.tasks) or funnel(run.store, layout).published is None:
        run_flow(config, layout.run_id)
    published = funnel(run.store, layout).published
    if published is None:
        raise TasksNotPublished(profile, layout.run_id)
    return run.store.uri(published.path)


def rounds_of(config: RlConfig, split: "TaskSplit") -> "Rounds":
    """What the rounds are made of."""
    from tasks.train.rounds.session import Rounds

    return Rounds(
        seed=config.seed,
        model=config.model,
        split=split,
        sampling=config.sampling,
        rounds=config.rounds,
        lengths=config.lengths,
        objective=config.objective,
        trainer=config.trainer,
        trust=config.trust,
        machine=config.machine,
        evaluation=config.evaluation,
        origin=config.origin,
    )
