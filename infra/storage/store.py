"""One root, many objects: local files, S3 and memory behind the same few calls.

Invariants: paths are relative to the root and cannot leave it; a write is atomic and durable when
the call returns; without `overwrite` an object is created exactly once. Credentials and endpoint
come from the environment only, never from a URI, so a `Store` can be logged and sent to workers.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec

from infra.storage.errors import BadPath, CorruptShard
from infra.storage.local import directory_lock, list_files, write_atomic
from infra.storage.remote import MEMORY_LOCK, put, translated

PROTOCOLS = ("file", "s3", "memory")


_S3_OPTIONS: dict[str, Any] = {
    "use_listings_cache": False,
    # The older signature of URLs covers neither the size nor "only if it is not there".
    "config_kwargs": {"signature_version": "s3v4"},
}


class Store:
    """Objects below one root URI (`file:///...` or a plain path, `s3://...`, `memory://...`)."""

    def __init__(self, root: str) -> None:
        protocol, bar, rest = root.partition("://")
        if not bar:
            protocol, rest = "file", root
        if protocol not in PROTOCOLS or not rest.strip("/"):
            raise BadPath(
                f"root with protocol {protocol[:20]!r}: allowed are a path, file://, s3://bucket/"
                "prefix and memory://name. Others have no conditional put that was tried"
            )
        if "@" in rest.split("/")[0] or "?" in rest:
            raise BadPath(
                f"the {protocol} root holds a user name, password or query; give credentials in "
                "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL)"
            )
        self.protocol = protocol
        self._directory = Path(rest).expanduser().absolute() if protocol == "file" else None
        if self._directory is not None:
            self.root = self._directory.as_uri()
            self._base = str(self._directory)
        else:
            self.root = f"{protocol}://{rest.strip('/')}"
            self._base = rest.strip("/")

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (str(self._directory) if self._directory else self.root,)

    def uri(self, *parts: str) -> str:
        """Full URI of a path, for other libraries."""
        return "/".join([self.root, *_segments("/".join(parts))]) if parts else self.root

    def local_path(self, path: str) -> Path | None:
        """The file behind a path; None where there is no local file system."""
        if self._directory is None:
            return None
        target = self._directory.joinpath(*_segments(path))
        # A link below the root (an upload is written by others) must not lead out of it.
        real, root = os.path.realpath(target), os.path.realpath(self._directory)
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise BadPath(f"{path!r} leads out of {self.root} through a link; remove the link")
        return target

    def exists(self, path: str) -> bool:
        """Whether an object (not a directory) is there."""
        local = self.local_path(path)
        if local is not None:
            return local.is_file()
        with translated("looking for", self.uri(path)):
            # Not `isfile`: it takes every failure of the network for an absent object.
            try:
                return bool(self._remote.info(self._full(path))["type"] == "file")
            except FileNotFoundError:
                return False

    def size(self, path: str) -> int:
        """Bytes of an object, without reading it; `NotFound` if it is not there."""
        local = self.local_path(path)
        with translated("looking for", self.uri(path)):
            if local is not None:
                return local.stat().st_size
            return int(self._remote.info(self._full(path))["size"])

    def read_bytes(self, path: str) -> bytes:
        """The whole object; `NotFound` if it is not there."""
        local = self.local_path(path)
        with translated("reading", self.uri(path)):
            if local is not None:
                return local.read_bytes()
            return bytes(self._remote.cat_file(self._full(path)))

    def read_json(self, path: str) -> Any:
        """The parsed object."""
        data = self.read_bytes(path)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptShard(
                f"{self.uri(path)} is not JSON ({error}; {len(data)} bytes). It was not written "
                "by this program as a whole; move it away and run the stage again"
            ) from error

    def write_bytes(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Write the whole object, or nothing. `AlreadyExists` if it is there already."""
        local = self.local_path(path)
        with translated("writing", self.uri(path)):
            if local is not None:
                write_atomic(local, data, overwrite=overwrite)
            else:
                put(self._remote, self._full(path), data, overwrite=overwrite)

    def write_json(self, path: str, obj: Any, *, overwrite: bool = False) -> None:
        """Write JSON: keys sorted, indented, UTF-8, one newline at the end, no NaN."""
        self.write_bytes(path, json_bytes(obj), overwrite=overwrite)

    def list(self, prefix: str) -> list[str]:
        """Paths of all objects below a directory; an absent one is empty."""
        start = len(self._base) + 1
        local = self.local_path(prefix) if prefix else self._directory
        if local is not None:
            return sorted(file.as_posix()[start:] for file in list_files(local))
        with translated("listing", self.uri(prefix) if prefix else self.root):
            try:
                found = self._remote.find(self._full(prefix) if prefix else self._base)
            except FileNotFoundError:
                return []
            return sorted(str(name).lstrip("/")[start:] for name in found)

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens if it is not there."""
        local = self.local_path(path)
        with translated("deleting", self.uri(path)), suppress(FileNotFoundError):
            if local is not None:
                local.unlink()
            else:
                self._remote.rm_file(self._full(path))

    def signed_put(
        self, path: str, size: int, sha256: str, seconds: int
    ) -> tuple[str, dict[str, str]]:
        """(URL, headers) with which anybody may create one object of S3 within some seconds.

        The store itself refuses other bytes, another size, and an object that is there already.
        """
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        with translated("signing for", self.uri(path)):
            url = self._remote.sign(
                self._full(path),
                seconds,
                client_method="put_object",
                ContentLength=size,
                ChecksumSHA256=checksum,
                IfNoneMatch="*",
            )
        headers = {"content-length": str(size), "x-amz-checksum-sha256": checksum}
        return str(url), headers | {"if-none-match": "*"}

    @contextmanager
    def exclusive(self, path: str) -> Iterator[bool]:
        """Keep other writers off the directory of `path`; yields whether the store can do that.

        An object store cannot: there only conditional creation protects.
        """
        local = self.local_path(path)
        if local is not None:
            with directory_lock(local.parent):
                yield True
        elif self.protocol == "memory":
            with MEMORY_LOCK:
                yield True
        else:
            yield False

    @property
    def _remote(self) -> Any:
        # fsspec keeps one client per process (a fork gets its own), so none is kept here.
        # Listings are never cached: other processes write to the same root.
        options = _S3_OPTIONS if self.protocol == "s3" else {}
        return fsspec.filesystem(self.protocol, **options)

    def _full(self, path: str) -> str:
        base = f"/{self._base}" if self.protocol == "memory" else self._base
        return "/".join([base, *_segments(path)])


def json_bytes(obj: Any) -> bytes:
    """The bytes that `write_json` writes."""
    text = json.dumps(obj, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8")


def _segments(path: str) -> list[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(c in path for c in "\\\0\r\n"):
        raise BadPath(
            f"path {path[:120]!r}: allowed are names joined by single slashes, relative to the "
            "root, without '.', '..', backslashes and control characters"
        )
    return parts
