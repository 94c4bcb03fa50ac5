"""Shards: a parquet file and, last, the manifest that alone says that it exists.

Invariants: a shard is committed once; a manifest is created, never replaced; data are checked
against it (size, sha256, rows, schema) at every read. Of two writers at once exactly one commits:
the other gets its manifest if both have the same content, and `CommitConflict` if not.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.storage.errors import (
    AlreadyExists,
    BadPath,
    CommitConflict,
    CorruptShard,
    NotCommitted,
    NotFound,
)
from infra.storage.parquet import conform, fingerprint, parquet_bytes
from infra.storage.store import Store

FORMAT = "tracemill-manifest-1"
KINDS = {"str": str, "int": int, "dict[str, Any]": dict}
"""Annotations of the manifest's fields -> types that their JSON values have."""


@dataclass(frozen=True)
class Manifest:
    """Proof that a shard exists, and what it must be."""

    path: str
    """Path of the shard, without extension."""
    rows: int
    bytes: int
    sha256: str
    schema_fingerprint: str
    producer: str
    info: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    """Path of the data: `<path>.parquet`, or a name with the content's hash where an object store
    held other, uncommitted data under that name."""


def commit_table(
    store: Store,
    path: str,
    table: pa.Table,
    *,
    schema: pa.Schema,
    producer: str,
    info: dict[str, Any] | None = None,
) -> Manifest:
    """Commit a table under `path` (no extension); one that is committed stays as it is."""
    present = read_manifest(store, path)
    if present is not None:
        return present
    data = parquet_bytes(conform(table, schema, store.uri(path)))
    sha256 = hashlib.sha256(data).hexdigest()
    with store.exclusive(path) as locked:
        present = read_manifest(store, path)
        if present is None:
            file = _place(store, path, data, sha256, locked)
            manifest = Manifest(
                path=path,
                rows=table.num_rows,
                bytes=len(data),
                sha256=sha256,
                schema_fingerprint=fingerprint(schema),
                producer=producer,
                info=dict(info or {}),
                file=file,
            )
            try:
                store.write_json(f"{path}.json", {"format": FORMAT, **asdict(manifest)})
            except AlreadyExists:
                present = read_manifest(store, path)
                if present is not None and file not in (present.file, f"{path}.parquet"):
                    store.delete(file)
            else:
                if file != f"{path}.parquet":
                    store.delete(f"{path}.parquet")
                return manifest
    return _same_or_conflict(store, path, present, sha256)


def _place(store: Store, path: str, data: bytes, sha256: str, locked: bool) -> str:
    """Write the data; an object that a committed manifest may name is never replaced."""
    file = f"{path}.parquet"
    try:
        store.write_bytes(file, data)
    except AlreadyExists:
        if locked:
            # Left by a writer that was killed before its manifest.
            store.write_bytes(file, data, overwrite=True)
        elif hashlib.sha256(store.read_bytes(file)).hexdigest() != sha256:
            # It may be left over, or belong to a writer that is about to commit.
            file = f"{path}.{sha256[:16]}.parquet"
            try:
                store.write_bytes(file, data)
            except AlreadyExists:
                pass
    return file


def _same_or_conflict(store: Store, path: str, present: Manifest | None, sha256: str) -> Manifest:
    if present is not None and present.sha256 == sha256:
        return present
    found = f"sha256 {present.sha256[:16]} by {present.producer}" if present else "nothing readable"
    raise CommitConflict(
        f"{store.uri(path)}: another writer committed {found} while this one (sha256 "
        f"{sha256[:16]}) was writing. The committed shard stands; read it instead"
    )


def read_manifest(store: Store, path: str) -> Manifest | None:
    """The manifest of a shard, None if it is not committed."""
    try:
        raw = store.read_json(f"{path}.json")
    except NotFound:
        return None
    return _parse(store, path, raw)


def _parse(store: Store, path: str, raw: Any) -> Manifest:
    names = {item.name for item in fields(Manifest)}
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or set(raw) != names | {"format"}:
        raise CorruptShard(
            f"{store.uri(path)}.json is not a manifest of format {FORMAT!r}; keys needed are "
            f"{sorted(names)}. Move it away and run the stage again"
        )
    manifest = Manifest(**{name: raw[name] for name in names})
    if manifest.path != path:
        raise CorruptShard(
            f"{store.uri(path)}.json is the manifest of {manifest.path!r}; it was copied there. "
            "Manifests do not move: remove it and run the stage again"
        )
    wrong = [
        item.name for item in fields(Manifest) if type(raw[item.name]) is not KINDS[str(item.type)]
    ]
    if wrong or not _is_data(path, manifest.file):
        raise CorruptShard(
            f"{store.uri(path)}.json: {wrong or ['file']} are not as in a manifest. It was not "
            "written by this program; remove it and run the stage again"
        )
    return manifest


def _is_data(path: str, name: str) -> bool:
    """Whether `name` can be the data of the shard."""
    return re.fullmatch(re.escape(path) + r"(\.[0-9a-f]{16})?\.parquet", name) is not None


def read_table(store: Store, path: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of a committed shard, checked against its manifest."""
    manifest = read_manifest(store, path)
    if manifest is None:
        raise NotCommitted(
            f"{store.uri(path)} is not committed (no manifest); run the stage that writes it"
        )
    data = _read_data(store, manifest)
    try:
        table = pq.read_table(pa.BufferReader(data), columns=columns)
        whole = pq.read_schema(pa.BufferReader(data))
    except pa.ArrowException as error:
        raise _corrupt(store, path, f"it is not readable parquet ({error})") from error
    if table.num_rows != manifest.rows:
        raise _corrupt(store, path, f"{table.num_rows} rows, the manifest says {manifest.rows}")
    if fingerprint(whole) != manifest.schema_fingerprint:
        raise _corrupt(store, path, "its schema is not the manifest's")
    absent = [name for name in columns or [] if name not in table.column_names]
    if absent:
        raise KeyError(f"{store.uri(path)}: no columns {absent}; there are {whole.names}")
    return table


def damaged(store: Store, path: str) -> str:
    """What is wrong with the manifest or the data of a shard; empty if both are as committed."""
    try:
        manifest = read_manifest(store, path)
        if manifest is None:
            return f"{store.uri(path)} is not committed (no manifest)"
        _read_data(store, manifest)
    except CorruptShard as error:
        return str(error)
    return ""


def discard(store: Store, path: str) -> None:
    """Take a shard back, so that its stage makes it again; nothing happens if there is none.

    The manifest goes first: a crash in between leaves data that nobody takes for committed. On an
    object store nobody may commit the same shard meanwhile.
    """
    with store.exclusive(path):
        store.delete(f"{path}.json")
        # A manifest that cannot be read does not name its data, so they are found by name.
        for name in store.list(path.rpartition("/")[0]):
            if _is_data(path, name):
                store.delete(name)


def _read_data(store: Store, manifest: Manifest) -> bytes:
    try:
        data = store.read_bytes(manifest.file)
    except NotFound:
        raise _corrupt(store, manifest.path, "its data are missing") from None
    if len(data) != manifest.bytes:
        what = f"{len(data)} bytes, the manifest says {manifest.bytes}"
        raise _corrupt(store, manifest.path, what)
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise _corrupt(store, manifest.path, "its sha256 is not the manifest's")
    return data


def _corrupt(store: Store, path: str, what: str) -> CorruptShard:
    return CorruptShard(
        f"{store.uri(path)}: {what}. The data changed after the commit; delete the manifest "
        f"{path}.json and run the stage again"
    )


def list_committed(store: Store, prefix: str) -> list[Manifest]:
    """Manifests of all shards below a directory, in order of path; other JSON is skipped."""
    found = []
    for name in store.list(prefix):
        if name.endswith(".json"):
            try:
                manifest = read_manifest(store, name.removesuffix(".json"))
            except (BadPath, CorruptShard):
                continue  # whatever lies there, no stage committed it as a shard
            if manifest is not None:
                found.append(manifest)
    return found
