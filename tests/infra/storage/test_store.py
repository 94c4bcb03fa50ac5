"""The same promises on every kind of store."""

from __future__ import annotations

import json
import pickle
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from infra.storage import Store, remote
from infra.storage.errors import (
    AccessDenied,
    AlreadyExists,
    BadPath,
    CorruptShard,
    NotFound,
    StorageError,
    StoreUnavailable,
)
from infra.storage.remote import put, redact


def test_write_read_list_delete(store: Store) -> None:
    assert store.list("") == [] and not store.exists("a/b.bin")
    store.write_bytes("a/b.bin", b"\x00\xff")
    store.write_bytes("a/c/d.bin", b"")
    store.write_json("z.json", {"b": 1, "a": "é"})
    assert store.read_bytes("a/b.bin") == b"\x00\xff"
    assert store.read_bytes("a/c/d.bin") == b""
    assert store.read_bytes("z.json") == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()
    assert store.read_json("z.json") == {"a": "é", "b": 1}
    assert store.list("") == ["a/b.bin", "a/c/d.bin", "z.json"]
    assert store.list("a") == ["a/b.bin", "a/c/d.bin"]
    assert store.list("absent") == []
    assert store.exists("a/b.bin") and not store.exists("a")
    store.delete("a/b.bin")
    store.delete("a/b.bin")
    assert store.list("a") == ["a/c/d.bin"]


def test_an_object_is_created_once(store: Store) -> None:
    store.write_bytes("x/one", b"first")
    with pytest.raises(AlreadyExists, match="x/one"):
        store.write_bytes("x/one", b"second")
    assert store.read_bytes("x/one") == b"first"
    store.write_bytes("x/one", b"third", overwrite=True)
    assert store.read_bytes("x/one") == b"third"


def test_of_many_creators_one_wins(store: Store) -> None:
    def create(number: int) -> int | None:
        try:
            store.write_bytes("race/one", str(number).encode())
            return number
        except AlreadyExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(create, range(16)) if number is not None]
    assert [str(winners[0]).encode()] == [store.read_bytes("race/one")] and len(winners) == 1
    assert store.list("race") == ["race/one"]


def test_absent_and_broken_objects(store: Store) -> None:
    with pytest.raises(NotFound, match="no such object"):
        store.read_bytes("nope")
    store.write_bytes("bad.json", b"{")
    with pytest.raises(CorruptShard, match="is not JSON"):
        store.read_json("bad.json")
    with pytest.raises(ValueError):
        store.write_json("nan.json", {"a": float("nan")})
    assert not store.exists("nan.json")


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "a//b", "a/../b", "..", "./a", "a/", "a\\b", "a\nb", "a\0b"]
)
def test_paths_cannot_leave_the_root(store: Store, path: str) -> None:
    for call in (store.read_bytes, store.exists, store.delete, store.uri, store.local_path):
        with pytest.raises(BadPath):
            store._full(path)
            call(path)
    with pytest.raises(BadPath):
        store.write_bytes(path, b"")


def test_a_link_cannot_lead_out_of_the_root(local_store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("no")
    local_store.write_bytes("uploads/a", b"")
    directory = local_store.local_path("uploads")
    assert directory is not None
    (directory / "link").symlink_to(tmp_path / "secret")
    (directory / "folder").symlink_to(tmp_path)
    with pytest.raises(BadPath, match="link"):
        local_store.read_bytes("uploads/link")
    with pytest.raises(BadPath, match="link"):
        local_store.write_bytes("uploads/folder/x", b"")
    assert "uploads/folder/secret" not in local_store.list("uploads")


@pytest.mark.parametrize(
    "root", ["", "gcs://bucket/x", "s3://", "http://host/x", "s3://key:hidden@bucket/x"]
)
def test_other_roots_are_refused(root: str) -> None:
    with pytest.raises(BadPath) as caught:
        Store(root)
    assert "hidden" not in str(caught.value)


def test_roots_and_uris(tmp_path: Path) -> None:
    plain, uri = Store(str(tmp_path)), Store(f"file://{tmp_path}")
    assert plain.root == uri.root == f"file://{tmp_path}"
    assert plain.uri("a", "b/c") == f"file://{tmp_path}/a/b/c"
    assert Store("s3://bucket/p/").uri("x") == "s3://bucket/p/x"
    assert Store("s3://bucket/p").local_path("x") is None


def test_a_store_travels_to_a_worker(store: Store) -> None:
    store.write_bytes("a", b"1")
    again = pickle.loads(pickle.dumps(store))
    assert again.root == store.root and again.read_bytes("a") == b"1"


def test_rights_are_not_retryable_and_network_is(
    s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    missing = Store("s3://no-such-bucket-here/x")
    with pytest.raises(NotFound):
        missing.write_bytes("a", b"")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreUnavailable) as caught:
        Store("s3://bucket/x").read_bytes("a")
    with pytest.raises(StoreUnavailable):
        Store("s3://bucket/x").exists("a")
    s3fs.S3FileSystem.clear_instance_cache()
    assert caught.value.retryable and not AccessDenied.retryable
    assert "very-secret" not in str(caught.value)


def test_secrets_are_taken_out_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcdefgh12345")
    monkeypatch.setenv("FSSPEC_S3_SECRET", "other-secret-1")
    text = (
        "PUT http://user:pw@host/b?X-Amz-Signature=ffee01&X-Amz-Credential=AKIA%2F1 key "
        "abcdefgh12345 other-secret-1 AWSAccessKeyId: AKIA99"
    )
    shown = redact(text)
    for secret in ("pw@", "ffee01", "AKIA", "abcdefgh12345", "other-secret-1"):
        assert secret not in shown
    assert "host/b" in shown


class Conflicting(MemoryFileSystem):
    """Answers 409 some times, as S3 does while another conditional put is under way."""

    cachable = False
    conflicts = 2

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: object) -> None:
        if self.conflicts:
            self.conflicts -= 1
            error = OSError("busy")
            error.__cause__ = ClientFault({"Error": {"Code": "ConditionalRequestConflict"}})
            raise error
        super().pipe_file(path, value, mode=mode)


class ClientFault(Exception):
    def __init__(self, response: dict[str, dict[str, str]]) -> None:
        super().__init__("fault")
        self.response = response


def test_a_conflict_is_tried_again_and_given_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_CONFLICT_TRIES", 3)
    fs = Conflicting()
    put(fs, "/conflict/a", b"1", overwrite=False)
    assert fs.cat_file("/conflict/a") == b"1"
    fs.conflicts = 100
    with pytest.raises(StoreUnavailable, match="409") as caught:
        put(fs, "/conflict/b", b"1", overwrite=False)
    assert caught.value.retryable


def test_every_error_says_whether_to_try_again() -> None:
    pending, seen = [StorageError], []
    while pending:
        kind = pending.pop()
        seen.append(kind)
        pending += kind.__subclasses__()
        assert isinstance(kind.retryable, bool)
    assert [kind.__name__ for kind in seen if kind.retryable] == ["StoreUnavailable"]


def test_what_others_write_is_seen_at_once(s3_store: Store, s3_root: str) -> None:
    import s3fs

    assert s3_store.list("") == [] and not s3_store.exists("a/b")
    other = s3fs.S3FileSystem(skip_instance_cache=True)
    other.pipe_file(f"{s3_root.removeprefix('s3://')}/a/b", b"1")
    assert s3_store.exists("a/b") and s3_store.list("") == ["a/b"]
    other.rm_file(f"{s3_root.removeprefix('s3://')}/a/b")
    assert s3_store.list("") == [] and not s3_store.exists("a/b")


def test_a_full_disk_leaves_nothing(local_store: Store) -> None:
    local_store.write_bytes("a/old", b"kept")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for overwrite in (False, True):
            with pytest.raises(StoreUnavailable, match="Check the disk"):
                local_store.write_bytes("a/new", b"x" * 5000, overwrite=overwrite)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    directory = local_store.local_path("a")
    assert directory is not None and [file.name for file in directory.iterdir()] == ["old"]


def test_json_is_written_in_one_form(local_store: Store) -> None:
    local_store.write_json("a.json", {"x": [1, {"b": 2, "a": 1}]})
    local_store.write_json("b.json", json.loads('{"x":[1,{"a":1,"b":2}]}'))
    assert local_store.read_bytes("a.json") == local_store.read_bytes("b.json")
