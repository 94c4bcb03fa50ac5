import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.storage import Store
from infra.storage.errors import AccessDenied, BadPath
from infra.storage.secret import config_dir, shared_secret


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Store(str(tmp_path / "data"))


def test_a_secret_is_made_once_and_is_its_owners_alone(store):
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: shared_secret("a.key", store), range(32)))
    assert len(found) == 1 and len(found.pop()) == 32
    assert shared_secret("b.key", store) != shared_secret("a.key", store)
    assert os.stat(config_dir() / "a.key").st_mode & 0o777 == 0o600
    assert sorted(path.name for path in config_dir().iterdir()) == ["a.key", "b.key"]


def test_a_secret_never_lies_below_a_storage_root(store, tmp_path):
    with pytest.raises(BadPath, match="below the storage root"):
        shared_secret("a.key", Store(str(tmp_path)))
    assert not config_dir().exists()
    assert len(shared_secret("a.key", Store("memory://x"))) == 32


def test_a_secret_that_others_can_read_or_that_was_cut_is_refused(store):
    shared_secret("a.key", store)
    path = config_dir() / "a.key"
    path.chmod(0o644)
    with pytest.raises(AccessDenied, match="read by others"):
        shared_secret("a.key", store)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(BadPath, match="5 bytes"):
        shared_secret("a.key", store)
