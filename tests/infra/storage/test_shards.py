"""A shard is committed once, and what is read is what was committed."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from infra.storage import (
    Store,
    commit_table,
    damaged,
    discard,
    list_committed,
    read_manifest,
    read_table,
    shards,
)
from infra.storage.errors import (
    CommitConflict,
    CorruptShard,
    NotCommitted,
    SchemaMismatch,
    StorageError,
)
from infra.storage.local import STALE_SECONDS, TEMP_PREFIX

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.int32()), nullable=False),
        pa.field("text", pa.large_string()),
    ]
)
PATH = "runs/r/traces/m/s"


def table(number: int = 5, text: str = "x") -> pa.Table:
    return pa.table(
        {
            "id": [f"t{i}" for i in range(number)],
            "tokens": [[i, i + 1] for i in range(number)],
            "text": [text] * number,
        }
    ).cast(SCHEMA)


def commit(store: Store, data: pa.Table | None = None, path: str = PATH) -> shards.Manifest:
    return commit_table(
        store, path, data or table(), schema=SCHEMA, producer="test@1", info={"counts": {"a": 1}}
    )


def test_commit_and_read(store: Store) -> None:
    assert read_manifest(store, PATH) is None
    manifest = commit(store)
    assert read_manifest(store, PATH) == manifest
    assert (manifest.path, manifest.rows, manifest.producer) == (PATH, 5, "test@1")
    assert manifest.info == {"counts": {"a": 1}}
    data = store.read_bytes(f"{PATH}.parquet")
    assert (manifest.bytes, manifest.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert read_table(store, PATH).equals(table())
    assert read_table(store, PATH, columns=["text"]).column_names == ["text"]
    assert store.list("") == [f"{PATH}.json", f"{PATH}.parquet"]


def test_a_committed_shard_stays_as_it_is(store: Store) -> None:
    first = commit(store)
    assert commit(store, table(text="other")) == first
    assert read_table(store, PATH).equals(table())


def test_data_without_manifest_do_not_exist_and_are_redone(store: Store) -> None:
    store.write_bytes(f"{PATH}.parquet", b"half of a file")
    with pytest.raises(NotCommitted, match="run the stage"):
        read_table(store, PATH)
    assert list_committed(store, "runs") == []
    commit(store)
    assert read_table(store, PATH).equals(table())
    assert b"half of a file" not in [store.read_bytes(name) for name in store.list("runs")]


@pytest.mark.parametrize("change", ["cut", "flip", "swap", "gone"])
def test_changed_data_are_not_read(store: Store, change: str) -> None:
    commit(store)
    file = f"{PATH}.parquet"
    data = store.read_bytes(file)
    if change == "gone":
        store.delete(file)
    else:
        changed = {
            "cut": data[:-5],
            "flip": data[:100] + bytes([data[100] ^ 1]) + data[101:],
            "swap": shards.parquet_bytes(table(text="y")),
        }[change]
        store.write_bytes(file, changed, overwrite=True)
    with pytest.raises(CorruptShard, match="delete the manifest"):
        read_table(store, PATH)


def test_a_manifest_that_lies_is_found(local_store: Store) -> None:
    commit(local_store)
    raw = local_store.read_json(f"{PATH}.json")
    for key, value, found in (("rows", 9, "9"), ("schema_fingerprint", "0", "schema")):
        local_store.write_json(f"{PATH}.json", {**raw, key: value}, overwrite=True)
        with pytest.raises(CorruptShard, match=found):
            read_table(local_store, PATH)
    local_store.write_json(f"{PATH}.json", {"rows": 1}, overwrite=True)
    with pytest.raises(CorruptShard, match="not a manifest"):
        read_manifest(local_store, PATH)
    local_store.write_json("other.json", raw)
    with pytest.raises(CorruptShard, match="copied"):
        read_manifest(local_store, "other")


def test_only_tables_of_the_contract_are_committed(local_store: Store) -> None:
    wide = table().set_column(1, "tokens", pa.array([[2**40]] * 5, pa.list_(pa.int64())))
    null = table().set_column(0, "id", pa.array(["a", None, "c", "d", "e"]))
    for bad, found in (
        (table().drop_columns(["text"]), r"missing columns \['text'\]"),
        (table().append_column("more", table().column("id")), r"unknown columns \['more'\]"),
        (wide, "without loss"),
        (null, "'id' holds 1 nulls"),
    ):
        with pytest.raises(SchemaMismatch, match=found):
            commit(local_store, bad)
    assert local_store.list("") == []


def test_types_and_order_are_brought_to_the_contract(local_store: Store) -> None:
    loose = pa.table(
        {"text": ["x"] * 5, "tokens": [[i, i + 1] for i in range(5)], "id": table().column("id")}
    )
    manifest = commit(local_store, loose)
    assert manifest.sha256 == commit(local_store, table(), path="again").sha256
    assert read_table(local_store, PATH).schema.equals(SCHEMA)


def test_list_committed_skips_other_files(store: Store) -> None:
    store.write_json("runs/r/funnel.json", {"rows": 1})
    second = commit(store, path="runs/r/traces/m/t")
    first = commit(store)
    store.write_bytes("runs/r/junk.json", b'{"rows": ')
    store.write_bytes("runs/r/traces/m/bytes.json", b"\xff\x00")
    raw = store.read_json(f"{PATH}.json")
    store.write_json("runs/r/traces/m/copied.json", raw)
    path = "runs/r/traces/m/u"
    store.write_json(f"{path}.json", raw | {"path": path, "file": "../../other.parquet"})
    store.write_json("runs/r/traces/m/v.json", {"format": shards.FORMAT})
    assert list_committed(store, "runs/r") == [first, second]


@pytest.mark.parametrize("change", ["cut", "flip", "gone", "manifest", "types"])
def test_a_damaged_shard_is_found_discarded_and_made_again(store: Store, change: str) -> None:
    assert "not committed" in damaged(store, PATH)
    first, other = commit(store), commit(store, path=f"{PATH}.2")
    assert damaged(store, PATH) == ""
    data = store.read_bytes(first.file)
    if change == "cut":
        store.write_bytes(first.file, data[:-1], overwrite=True)
    elif change == "flip":
        store.write_bytes(first.file, bytes([data[0] ^ 1]) + data[1:], overwrite=True)
    elif change == "gone":
        store.delete(first.file)
    elif change == "manifest":
        store.write_bytes(f"{PATH}.json", b"{", overwrite=True)
    else:
        raw = store.read_json(f"{PATH}.json")
        store.write_json(f"{PATH}.json", raw | {"rows": "5", "info": []}, overwrite=True)
    found = {"cut": "bytes", "flip": "sha256", "gone": "missing", "manifest": "not JSON"}
    assert found.get(change, "'rows', 'info'") in damaged(store, PATH)
    discard(store, PATH)
    assert store.list("runs") == [f"{PATH}.2.json", f"{PATH}.2.parquet"]
    assert commit(store) == first and damaged(store, PATH) == ""
    assert read_manifest(store, other.path) == other


def test_data_under_another_name_are_discarded_too(store: Store) -> None:
    manifest = commit(store)
    file = f"{PATH}.{manifest.sha256[:16]}.parquet"
    store.write_bytes(file, store.read_bytes(manifest.file))
    raw = store.read_json(f"{PATH}.json")
    store.write_json(f"{PATH}.json", raw | {"file": file}, overwrite=True)
    assert damaged(store, PATH) == ""
    discard(store, PATH)
    discard(store, PATH)
    assert store.list("") == []


def test_a_crash_while_discarding_leaves_no_manifest(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = commit(local_store)
    delete = local_store.delete

    def dying(path: str) -> None:
        if path == manifest.file:
            raise KeyboardInterrupt
        delete(path)

    monkeypatch.setattr(local_store, "delete", dying)
    with pytest.raises(KeyboardInterrupt):
        discard(local_store, PATH)
    assert read_manifest(local_store, PATH) is None and local_store.exists(manifest.file)
    assert commit(local_store) == manifest


def _commit_in_process(root: str, text: str) -> str:
    try:
        return commit(Store(root), table(2000, text)).sha256
    except StorageError as error:
        return type(error).__name__


def test_two_processes_that_agree_get_one_manifest(local_store: Store) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        root = local_store.root
        results = pool.starmap(_commit_in_process, [(root, "same")] * 8, chunksize=1)
    assert results == [read_manifest(local_store, PATH).sha256] * 8  # type: ignore[union-attr]
    assert local_store.list("") == [f"{PATH}.json", f"{PATH}.parquet"]


def test_threads_that_disagree_leave_one_good_shard(store: Store) -> None:
    def one(number: int) -> str:
        try:
            return commit(store, table(50, f"text {number}")).sha256
        except CommitConflict as error:
            assert "another writer" in str(error)
            return "conflict"

    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(one, range(8)))
    manifest = read_manifest(store, PATH)
    assert manifest is not None
    assert results - {"conflict"} == {manifest.sha256}
    assert read_table(store, PATH).num_rows == 50


class Late(Store):
    """A writer that looked for a manifest before another one committed."""

    other: pa.Table

    def write_bytes(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        if path == f"{PATH}.parquet" and not self.exists(f"{PATH}.json"):
            commit(Store(self.root), self.other)
        super().write_bytes(path, data, overwrite=overwrite)


def test_the_loser_on_an_object_store_harms_nothing(s3_root: str) -> None:
    late = Late(s3_root)
    late.other = table(text="winner")
    with pytest.raises(CommitConflict):
        commit(late, table(text="loser"))
    assert read_table(late, PATH).equals(table(text="winner"))
    assert late.list("") == [f"{PATH}.json", f"{PATH}.parquet"]


def test_the_loser_with_the_same_content_gets_the_manifest(s3_root: str) -> None:
    late = Late(s3_root)
    late.other = table()
    assert commit(late) == read_manifest(late, PATH)


KILLED = """
import os, signal, sys
from infra.storage import Store
import test_shards
store = Store(sys.argv[1])
write = store.write_bytes
def stop(path, data, *, overwrite=False):
    if path.endswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, data, overwrite=overwrite)
store.write_bytes = stop
test_shards.commit(store, test_shards.table(text="of the killed one"))
"""


def test_killed_between_data_and_manifest(local_store: Store) -> None:
    here = Path(__file__)
    environment = {**os.environ, "PYTHONPATH": f"{here.parents[3]}:{here.parent}"}
    command = [sys.executable, "-c", KILLED, local_store.root, ".json"]
    done = subprocess.run(command, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert local_store.list("") == [f"{PATH}.parquet"]
    assert read_manifest(local_store, PATH) is None
    commit(local_store)
    assert read_table(local_store, PATH).equals(table())
    assert local_store.list("") == [f"{PATH}.json", f"{PATH}.parquet"]


def test_what_a_killed_writer_leaves_is_invisible_and_goes_away(local_store: Store) -> None:
    commit(local_store)
    file = local_store.local_path(f"{PATH}.parquet")
    assert file is not None
    old, new = (file.parent / f"{TEMP_PREFIX}{name}" for name in ("old", "new"))
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    past = time.time() - STALE_SECONDS - 1
    os.utime(old, (past, past))
    assert local_store.list("") == [f"{PATH}.json", f"{PATH}.parquet"]
    commit(local_store, path="runs/r/traces/m/next")
    assert not old.exists() and new.exists()
