"""Versions, the pointer, and crashes between any two writes."""

import itertools
import threading

import pytest

from infra.storage import Store
from tasks.publish import latest
from tasks.publish.errors import VersionDamaged
from tasks.publish.files import make_file, version_of
from tasks.publish.versions import head_version, make_current, write_version


class Killed(Exception):
    """Stands for the end of the process."""


class DyingStore(Store):
    """A real store whose process ends at the n-th write."""

    def __init__(self, root, writes):
        super().__init__(root)
        self.left = writes

    def write_bytes(self, path, data, *, overwrite=False):
        if self.left == 0:
            raise Killed(path)
        self.left -= 1
        super().write_bytes(path, data, overwrite=overwrite)


def put(store, text):
    files = [make_file(f"full/{n}", f"{text}{n}".encode()) for n in range(2)]
    version = version_of(files)
    parent = head_version(store, "made")
    write_version(store, "made", version, files, {"version": version, "parent_version": parent})
    make_current(store, "made", version)
    return version


@pytest.mark.parametrize("writes", range(5))
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_crash_anywhere_leaves_the_former_version_current(tmp_path, kind, writes):
    root = str(tmp_path) if kind == "disk" else f"memory://{tmp_path.name}"
    first = put(Store(root), "a")
    with pytest.raises(Killed):
        put(DyingStore(root, writes), "b")
    assert latest(Store(root), "made")["version"] == first
    second = put(Store(root), "b")
    pointer = latest(Store(root), "made")
    assert pointer["version"] == second and pointer["previous"] == first
    assert pointer["sequence"] == 2
    manifest = Store(root).read_json(f"published/made/{second}/manifest.json")
    assert manifest["parent_version"] == first


def test_same_content_again_changes_nothing(tmp_path):
    store = Store(str(tmp_path))
    put(store, "a")
    before = {path: store.read_bytes(path) for path in store.list("published")}
    put(store, "a")
    assert {path: store.read_bytes(path) for path in store.list("published")} == before


def test_a_former_version_can_become_current_again(tmp_path):
    store = Store(str(tmp_path))
    first, second = put(store, "a"), put(store, "b")
    put(store, "a")
    pointer = latest(store, "made")
    assert (pointer["version"], pointer["previous"], pointer["sequence"]) == (first, second, 3)


def test_other_files_beside_the_entries_are_no_entries(tmp_path):
    store = Store(str(tmp_path))
    first = put(store, "a")
    for name in ("notes.json", "00000009.json~", "99999999999.json", "old/00000007.json"):
        store.write_bytes(f"published/made/_versions/{name}", b"not an entry")
    assert head_version(store, "made") == first
    second = put(store, "b")
    pointer = latest(store, "made")
    assert (pointer["version"], pointer["sequence"]) == (second, 2)


def test_a_changed_file_of_a_version_is_found(tmp_path):
    store = Store(str(tmp_path))
    version = put(store, "a")
    store.write_bytes(f"published/made/{version}/full/0", b"other", overwrite=True)
    with pytest.raises(VersionDamaged, match="restore the file"):
        put(store, "a")
    store.delete(f"published/made/{version}/full/0")
    with pytest.raises(VersionDamaged, match="no file"):
        put(store, "a")


def test_publishers_at_once_end_with_the_newest_entry(tmp_path):
    texts = [f"text {n} " for n in range(6)]
    threads = [threading.Thread(target=put, args=(Store(str(tmp_path)), text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = Store(str(tmp_path))
    entries = [store.read_json(path) for path in store.list("published/made/_versions")]
    assert [entry["sequence"] for entry in entries] == list(range(1, 7))
    assert len({entry["version"] for entry in entries}) == 6
    assert all(b["previous"] == a["version"] for a, b in itertools.pairwise(entries))
    assert latest(store, "made") == entries[-1]
