"""Versions of a dataset and the pointer to the current one.

    published/<name>/<version>/...            files, then manifest.json as the last one
    published/<name>/_versions/00000001.json  the order of versions: created only if absent
    published/<name>/_LATEST.json             the newest entry of that list, for readers

Invariants: a version that has its manifest never changes; an entry of `_versions` is created by one
publisher only (create-if-absent is the compare-and-swap that every store has); `_LATEST.json` moves
last and only to the newest entry, so a crash anywhere before leaves the former version current.
"""

import hashlib
import re
from typing import Any

from infra.storage import Store
from infra.storage.errors import AlreadyExists
from tasks.publish.errors import PointerContended, VersionDamaged
from tasks.publish.files import File

TRIES = 20


def version_path(name: str, version: str) -> str:
    """Folder of a version, relative to the store's root."""
    return f"published/{name}/{version}"


def latest(store: Store, name: str) -> dict[str, Any] | None:
    """What readers see as current, or None before the first publication."""
    path = f"published/{name}/_LATEST.json"
    return dict(store.read_json(path)) if store.exists(path) else None


def write_version(
    store: Store, name: str, version: str, files: list[File], manifest: dict[str, Any]
) -> None:
    """Write the files and then the manifest; finish a version that a crash left half written."""
    folder = version_path(name, version)
    if store.exists(f"{folder}/manifest.json"):
        _check_version(store, folder, files)
        return
    for file in files:
        # a leftover of a crashed attempt has the same bytes; each write is atomic
        store.write_bytes(f"{folder}/{file.path}", file.data, overwrite=True)
    try:
        store.write_json(f"{folder}/manifest.json", manifest)
    except AlreadyExists:
        _check_version(store, folder, files)


def make_current(store: Store, name: str, version: str) -> dict[str, Any]:
    """Put the version at the head of the list and move the pointer to the head."""
    entry = _claim(store, name, version)
    for _ in range(TRIES):
        head = _head(store, name)
        if head is None:
            break
        store.write_json(f"published/{name}/_LATEST.json", head, overwrite=True)
        # somebody newer may have moved the pointer between our look and our write: look again
        after = _head(store, name)
        if after is not None and after["sequence"] == head["sequence"]:
            return entry
    raise PointerContended(name, TRIES)


def head_version(store: Store, name: str) -> str | None:
    """The newest version in the list, which a new one follows."""
    head = _head(store, name)
    return None if head is None else str(head["version"])


def _claim(store: Store, name: str, version: str) -> dict[str, Any]:
    manifest = store.read_bytes(f"{version_path(name, version)}/manifest.json")
    for _ in range(TRIES):
        head = _head(store, name)
        if head is not None and head["version"] == version:
            return head
        sequence = 1 if head is None else int(head["sequence"]) + 1
        entry = {
            "name": name,
            "sequence": sequence,
            "version": version,
            "previous": None if head is None else head["version"],
            "path": version_path(name, version),
            "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
        }
        try:
            store.write_json(f"published/{name}/_versions/{sequence:08d}.json", entry)
        except AlreadyExists:
            continue
        return entry
    raise PointerContended(name, TRIES)


def _head(store: Store, name: str) -> dict[str, Any] | None:
    folder = f"published/{name}/_versions"
    # other files (a copy made by an editor, a lock of a sync tool) are no entries
    pattern = re.compile(re.escape(folder) + r"/[0-9]{8}\.json")
    entries = [path for path in store.list(folder) if pattern.fullmatch(path)]
    return dict(store.read_json(entries[-1])) if entries else None


def _check_version(store: Store, folder: str, files: list[File]) -> None:
    for file in files:
        path = f"{folder}/{file.path}"
        if not store.exists(path):
            raise VersionDamaged(path, "no file", f"sha256 {file.sha256}")
        found = hashlib.sha256(store.read_bytes(path)).hexdigest()
        if found != file.sha256:
            raise VersionDamaged(path, f"sha256 {found}", f"sha256 {file.sha256}")
