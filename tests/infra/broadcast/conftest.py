"""An origin with a version to publish."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from infra.broadcast import BroadcastClient, Origin
from toploc.signing import SigningKey

STREAM = "run"
KEY = SigningKey(b"k" * 32)


@pytest.fixture
def weights(tmp_path):
    """Makes the directory of a version; other numbers have other bytes."""

    def make(number: int, size: int = 100_000) -> Path:
        directory = tmp_path / f"weights-{number}-{size}"
        directory.mkdir()
        (directory / "config.json").write_bytes(b'{"layers": 2}')
        (directory / "empty.txt").write_bytes(b"")
        (directory / "model.safetensors").write_bytes(random.Random(number).randbytes(size))
        return directory

    return make


@pytest.fixture
def origin(tmp_path):
    return Origin(tmp_path / "origin", STREAM, KEY, keep=3, shard_bytes=16_384)


@pytest.fixture
def client_of(tmp_path):
    """Makes a client of a URL."""
    made = []

    def make(url: str, keep: int = 3, publisher: str = KEY.node_id) -> BroadcastClient:
        made.append(BroadcastClient(url, STREAM, publisher, tmp_path / "client", keep))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def same():
    """Whether a version is what was published."""

    def check(version, directory: Path) -> bool:
        names = sorted(path.name for path in directory.iterdir())
        return sorted(path.name for path in version.path.iterdir()) == names and all(
            (version.path / name).read_bytes() == (directory / name).read_bytes() for name in names
        )

    return check
