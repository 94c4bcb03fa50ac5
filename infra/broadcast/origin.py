"""Where versions are published: a directory of whole, signed versions, served as it is.

`<root>/<version>/manifest.json` and `shard_00000.bin`, ... Invariants: a version's directory
appears by one rename, complete and on disk, or not at all; numbers only grow; a published version
never changes, and publishing the same again does nothing; the `keep` newest versions stay. What a
killed publisher left has the temporary prefix and goes away with the next publication. One process
publishes a stream.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from infra.broadcast.errors import (
    NO_ROOM,
    DiskFull,
    NothingToPublish,
    VersionGoesBack,
    VersionTaken,
)
from infra.broadcast.manifest import (
    MANIFEST_NAME,
    SHARD_BYTES,
    File,
    Manifest,
    Shard,
    parse,
    shard_name,
)
from infra.models.directory import SUFFIXES, model_files
from infra.storage.errors import BadPath
from infra.storage.layout import segment
from infra.storage.local import TEMP_PREFIX, directory_lock, fsync_path
from toploc.signing import SigningKey

_BLOCK = 1 << 20


class Origin:
    """The published versions of one stream."""

    def __init__(
        self, root: Path, stream: str, key: SigningKey, keep: int, shard_bytes: int = SHARD_BYTES
    ):
        if keep < 1 or shard_bytes < 1:
            raise ValueError(f"keep={keep}, shard_bytes={shard_bytes}; both are at least 1")
        self.stream = stream
        self.root = root
        self._key = key
        self._keep = keep
        self._shard_bytes = shard_bytes
        root.mkdir(parents=True, exist_ok=True)

    @property
    def publisher(self) -> str:
        """Whose signature clients have to ask for."""
        return self._key.node_id

    def versions(self) -> list[int]:
        """Published versions, ascending."""
        return published(self.root)

    def publish(self, version: int, directory: Path) -> Manifest:
        """Publish the model of a directory as a version; what else lies there stays here."""
        files = _files_of(directory)
        with directory_lock(self.root):
            for left in self.root.glob(f"{TEMP_PREFIX}*"):
                shutil.rmtree(left)
            present = self.versions()
            if version in present:
                return self._same(version, files, directory)
            if present and version < present[-1]:
                raise VersionGoesBack(self.stream, version, present[-1])
            try:
                self._write(version, files, directory)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                shutil.rmtree(self.root / f"{TEMP_PREFIX}{version}", ignore_errors=True)
                size = sum(file.size for file in files)
                raise DiskFull(self.root, size, str(error)) from error
            for old in self.versions()[: -self._keep]:
                self._remove(old)
        return self._read(version)

    def _write(self, version: int, files: tuple[File, ...], directory: Path) -> None:
        temporary = self.root / f"{TEMP_PREFIX}{version}"
        temporary.mkdir()
        shards = []
        for index, blocks in enumerate(_shards_of(files, directory, self._shard_bytes)):
            with open(temporary / shard_name(index), "xb") as file:
                shards.append(_hashed(blocks, file.write))
                file.flush()
                os.fsync(file.fileno())
        manifest = Manifest(self.stream, version, files, tuple(shards))
        with open(temporary / MANIFEST_NAME, "xb") as file:
            file.write(manifest.signed(self._key))
            file.flush()
            os.fsync(file.fileno())
        fsync_path(temporary)
        os.rename(temporary, self.root / str(version))
        fsync_path(self.root)

    def _same(self, version: int, files: tuple[File, ...], directory: Path) -> Manifest:
        manifest = self._read(version)
        size = manifest.shards[0].size
        shards = tuple(_hashed(blocks) for blocks in _shards_of(files, directory, size))
        if (manifest.files, manifest.shards) != (files, shards):
            raise VersionTaken(self.stream, version)
        return manifest

    def _read(self, version: int) -> Manifest:
        data = (self.root / str(version) / MANIFEST_NAME).read_bytes()
        return parse(data, self.publisher, self.stream, version)

    def _remove(self, version: int) -> None:
        # By a rename first: a manifest that can be read has all its shards beside it.
        leaving = self.root / f"{TEMP_PREFIX}gone-{version}"
        os.rename(self.root / str(version), leaving)
        shutil.rmtree(leaving)


def published(root: Path) -> list[int]:
    """Versions below a directory, ascending."""
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))


def _files_of(directory: Path) -> tuple[File, ...]:
    paths = model_files(directory) if directory.is_dir() else []
    try:
        files = tuple(File(segment(p.name, "file"), p.stat().st_size) for p in paths)
    except BadPath as error:
        raise NothingToPublish(f"{directory} cannot be a version: {error}") from error
    if not sum(file.size for file in files):
        raise NothingToPublish(
            f"{directory} cannot be a version: it holds nothing of a model; give a directory with "
            f"files whose names end in {', '.join(SUFFIXES)}"
        )
    return files


def _shards_of(files: tuple[File, ...], directory: Path, size: int) -> Iterator[Iterator[bytes]]:
    """The blocks of each shard, in order; a shard is to be read before the next one."""
    left = sum(file.size for file in files)
    stream = _stream(files, directory)
    rest = b""

    def shard(length: int) -> Iterator[bytes]:
        nonlocal rest
        while length:
            block = rest or next(stream)
            taken, rest = block[:length], block[length:]
            length -= len(taken)
            yield taken

    while left:
        yield shard(min(size, left))
        left -= min(size, left)


def _stream(files: tuple[File, ...], directory: Path) -> Iterator[bytes]:
    for file in files:
        with open(directory / file.name, "rb") as opened:
            while block := opened.read(_BLOCK):
                yield block


def _hashed(
    blocks: Iterator[bytes], write: Callable[[bytes], object] = lambda block: None
) -> Shard:
    digest, length = hashlib.sha256(), 0
    for block in blocks:
        digest.update(block)
        length += len(block)
        write(block)
    return Shard(length, digest.hexdigest())
