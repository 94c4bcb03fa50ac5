"""A published rl split of short words, and rounds over it in real processes."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from data_contracts import publish as contract
from data_contracts.ids import canonical_json, task_id
from data_contracts.text import table_from_rows
from infra.storage import RunLayout, Store, parquet_bytes
from tasks.generate.config import SamplingConfig
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool
from tasks.train.curriculum import KINDS
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

WORDS = 64


def published_words(directory: Path) -> Path:
    """A dataset directory as `publish` leaves it: words to spell backward."""
    rows = {}
    for task in KINDS[0].tasks(777, 2 * WORDS):
        prompt = [{"role": "user", "content": task.prompt}]
        identity = task_id(task.task_type, prompt, task.verification_info)
        rows[identity] = {
            "problem_id": identity,
            "task_id": identity,
            "task_type": task.task_type,
            "prompt": prompt,
            "verification_info": canonical_json(task.verification_info),
            "avg_reward_x": 0.5,
            "pass_rate_x": 0.5,
            "n_x": 4,
        }
    table = table_from_rows([rows[key] for key in sorted(rows)[:WORDS]], contract.rl(["x"]))
    Store(str(directory)).write_bytes("rl/train-00000-of-00001.parquet", parquet_bytes(table))
    return directory


@pytest.fixture
def words(tmp_path) -> Path:
    return published_words(tmp_path / "words")


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
        local_pool(ProvisionConfig(nodes=nodes)) as pool,
        opened(rounds, store, layout, pool, events or Events()) as driver,
    ):
        yield driver, store, layout
