"""The engine of a node follows the versions, whatever becomes of their directories."""

import json
import shutil

import pytest
from swarm import BASE, changed_weights

from infra.broadcast import Version
from infra.models.registry import COMPUTE_DTYPE
from infra.models.revision import directory_revision
from tasks.train.rollouts.job import Broadcast
from tasks.train.rollouts.policy import Policy


@pytest.fixture
def policy(tmp_path):
    broadcast = Broadcast(url="http://127.0.0.1:9", stream="s", publisher="p", keep=1)
    made = Policy(BASE, broadcast, tmp_path / "cache")
    yield made
    made.close()


@pytest.fixture
def version(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEMILL_CACHE", str(tmp_path / "cache"))
    return lambda number: Version(number, changed_weights(tmp_path / f"v{number}", number))


def test_a_loaded_version_that_was_tidied_away_is_followed_by_the_next(policy, version) -> None:
    old, new = version(1), version(2)
    engine = policy.load(old)
    shutil.rmtree(old.path)
    assert policy.load(old) is engine
    assert policy.load(new) is engine  # replaced in place
    assert engine.revision == directory_revision(new.path, COMPUTE_DTYPE)


def test_another_config_makes_another_engine(policy, version) -> None:
    engine = policy.load(version(1))
    other = version(2)
    config = other.path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rms_norm_eps": 0.5}))
    assert policy.load(other) is not engine
