"""Published policy versions, and runs over them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from swarm import VERSIONS, Run, changed_weights

from infra.broadcast import Origin
from infra.broadcast.service import serving
from tasks.train.rollouts.job import Broadcast
from tasks.train.rollouts.uploads import UploadReader
from toploc.signing import SigningKey


@pytest.fixture(scope="session")
def broadcast(tmp_path_factory):
    root = tmp_path_factory.mktemp("origin")
    key = SigningKey(b"p" * 32)
    origin = Origin(root / "versions", "policy", key, keep=VERSIONS)
    for number in range(VERSIONS):
        origin.publish(number, changed_weights(root / f"weights-{number}", number))
    with serving({"policy": root / "versions"}) as url:
        yield Broadcast(
            url=url, stream="policy", publisher=key.node_id, keep=VERSIONS, wait_seconds=20
        )


@pytest.fixture(scope="session")
def version_cache(tmp_path_factory, calibrated_here):
    cache = tmp_path_factory.mktemp("cache")
    (cache / "calibration").symlink_to(calibrated_here / "calibration", target_is_directory=True)
    return cache


@pytest.fixture(scope="session")
def upload_reader():
    with UploadReader() as started:
        yield started


@pytest.fixture
def start(tmp_path, broadcast, version_cache, upload_reader, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TRACEMILL_CACHE", str(version_cache))

    def begin(strangers, **settings) -> Run:
        return Run(tmp_path / "data", broadcast, strangers, upload_reader, **settings)

    return begin
