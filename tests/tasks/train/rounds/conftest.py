"""A published rl split of short words, and rounds over it in real processes."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.storage import RunLayout, Store
from tasks.generate.config import SamplingConfig
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.driver import Events
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.session import Rounds, opened
from tasks.train.rounds.tasks import TaskChoice, read_split
from tasks.train.rounds.trainer_process import TrainerResources
from tasks.train.trainer import TrainerConfig
from tests.bench.rl_tasks import write_split


@pytest.fixture
def words(tmp_path) -> Path:
    return write_split(tmp_path / "words", ["spell_backward"], 64)


@pytest.fixture
def small():
    """`small(dataset, **changes)`: rounds of a few steps."""
    return small_rounds


@pytest.fixture
def drive():
    """`with drive(rounds, root) as (driver, store, layout)`."""
    return driving


def small_rounds(dataset: Path, **changes) -> Rounds:
    """A few steps that take seconds."""
    values = {
        "seed": 3,
        "model": "tracemill/nano-s",
        "split": read_split(TaskChoice(dataset=str(dataset), held_out=8)),
        "sampling": SamplingConfig(temperature=1.0, max_tokens=32),
        "rounds": RoundsConfig(
            steps=2, staleness=0, group_size=4, groups_per_job=6, groups_per_step=2
        ),
        "lengths": LengthConfig(),
        "objective": ObjectiveConfig(kl_coef=0.0),
        "trainer": TrainerConfig(learning_rate=1e-4, optimizer_steps=2, warmup_steps=0),
        "trust": TrustConfig(),
        "machine": TrainerResources(),
        "evaluation": EvaluationConfig(every=2),
    }
    return Rounds(**values | changes)


@contextmanager
def driving(rounds: Rounds, root: Path, nodes: int = 1, events: Events | None = None):
    """A driver of the rounds over real nodes, and the run's layout and store."""
    store, layout = Store(str(root)), RlLayout(RunLayout("tiny"))
    with (
        local_pool(ProvisionConfig(nodes=nodes), store, f"{layout.root}/pool") as pool,
        opened(rounds, store, layout, pool, events or Events()) as driver,
    ):
        yield driver, store, layout
