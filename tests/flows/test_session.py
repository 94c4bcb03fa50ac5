import pyarrow as pa
import pytest
from prefect.logging import disable_run_logger

from flows.profiles import load_profile
from flows.runs import open_run
from flows.session import Once, committed
from infra.storage import commit_table, read_manifest
from tasks.generate.plan import Shard

SHARD = Shard("a/b", "s" * 32, ())


@pytest.fixture
def run(tmp_path):
    opened = open_run(load_profile("smoke", [f"storage.root={tmp_path}"]), "r")
    table = pa.table({"n": [1, 2, 3]})
    path = opened.layout.traces("a--b", SHARD.shard_id)
    commit_table(opened.store, path, table, schema=table.schema, producer="test")
    return opened


@pytest.mark.parametrize("how", ["flip", "cut", "gone", "manifest"])
def test_a_damaged_shard_is_discarded_so_that_it_is_made_again(run, how):
    path = run.layout.traces("a--b", SHARD.shard_id)
    assert committed(run, "generate", SHARD)
    file = run.store.local_path(f"{path}.parquet")
    data = bytearray(file.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
    elif how == "cut":
        file.write_bytes(bytes(data[:-5]))
    elif how == "gone":
        file.unlink()
    else:
        run.store.local_path(f"{path}.json").write_text("")
    with disable_run_logger():
        assert not committed(run, "generate", SHARD)
        assert not committed(run, "generate", SHARD)
    assert read_manifest(run.store, path) is None
    assert not committed(run, "verify", SHARD)


def test_a_part_of_a_session_is_made_once_and_only_when_asked_for():
    made = []
    part = Once(lambda: made.append(1) or "value")
    assert made == []
    assert [part(), part()] == ["value", "value"]
    assert made == [1]
