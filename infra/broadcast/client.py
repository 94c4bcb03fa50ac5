"""Versions fetched from an origin, whole and verified.

`<directory>/<publisher>/<stream>/<version>/` holds the files of a version: what one publisher
signed is never taken for another's. Invariants: that directory appears by one rename, after every
shard had the hash that the publisher signed, or not at all; who asks for
the newest never gets an older one than is here, whatever the origin offers. Shards that came, also
in part, stay until the version is whole, and a fetch that was killed goes on where it was. Several
processes may share a directory: one fetches, the others wait for it. A stream that nobody has asked
for in a day goes when another one is begun.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from infra.broadcast.download import Deadline, Source, fetch_shards, join
from infra.broadcast.errors import (
    NO_ROOM,
    BadManifest,
    BroadcastError,
    CorruptShard,
    DiskFull,
    NoVersion,
    OriginFault,
    TooSlow,
)
from infra.broadcast.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, TOKEN_VARIABLE, parse
from infra.broadcast.origin import published
from infra.storage.layout import segment
from infra.storage.local import TEMP_PREFIX, fsync_path

POLL_SECONDS = 0.25
UNUSED_SECONDS = 86_400.0


@dataclass(frozen=True)
class Version:
    """A version on this machine."""

    number: int
    path: Path


class BroadcastClient:
    """One stream of one publisher, as seen from here."""

    def __init__(self, url: str, stream: str, publisher: str, directory: Path, keep: int = 3):
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least 1 version stays")
        self._stream = segment(stream, "stream")
        self._publisher = publisher
        self._keep = keep
        self._source = Source(url, stream, os.environ.get(TOKEN_VARIABLE, ""))
        self.directory = directory / segment(publisher, "publisher") / stream
        if not self.directory.is_dir():
            _remove_unused(directory)
        self._touch()

    def close(self) -> None:
        """Give the connections back."""
        self._source.close()

    def here(self) -> list[int]:
        """Versions that are on this machine, ascending."""
        return published(self.directory)

    def offered(self) -> list[int]:
        """Versions that the origin says it has, ascending. A hint: only manifests are signed."""
        given = self._source.get("versions", MAX_MANIFEST_BYTES)
        try:
            listed = json.loads(given)["versions"]
            return sorted(number for number in listed if type(number) is int and number >= 0)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OriginFault(f"the origin's list of versions is none: {error!r}") from error

    def newest(self, least: int, most: int, seconds: float) -> Version:
        """The newest version from `least` to `most`, fetched if need be; waits for one to come.

        An origin that fails, or that offers older versions than before, does no harm while a
        version of the range is here. Raises NoVersion, DiskFull.
        """
        self._touch()
        deadline, last = Deadline.after(seconds), ""
        broken: set[int] = set()
        while True:
            here = [number for number in self.here() if least <= number <= most]
            wanted, newest_here = -1, here[-1] if here else -1
            try:
                offered = {number for number in self.offered() if least <= number <= most}
                wanted = max(offered - broken, default=-1)
                if wanted > newest_here:
                    return self.fetch(wanted, max(deadline.left, 1.0))
            except DiskFull:
                raise
            except BroadcastError as error:
                last = str(error)
                if isinstance(error, CorruptShard | BadManifest):
                    broken.add(wanted)  # what is published next may be whole again
            if here:
                return Version(newest_here, self.directory / str(newest_here))
            if deadline.left <= 0:
                raise NoVersion(self._stream, least, most, seconds, last)
            time.sleep(POLL_SECONDS)

    def fetch(self, version: int, seconds: float) -> Version:
        """A version, fetched unless it is here. Older ones than the `keep` newest go.

        Raises VersionGone, BadManifest, CorruptShard, TooSlow, DiskFull, OriginFault.
        """
        self._touch()
        target, deadline = self.directory / str(version), Deadline.after(seconds)
        if not target.is_dir():
            with self._alone(version, deadline), self._room(version):
                if not target.is_dir():
                    self._fetch(version, target, deadline)
                    self._tidy(version)
        return Version(version, target)

    def _fetch(self, version: int, target: Path, deadline: Deadline) -> None:
        data = self._source.get(f"{version}/{MANIFEST_NAME}", MAX_MANIFEST_BYTES)
        manifest = parse(data, self._publisher, self._stream, version)
        part = self._part(version)
        shards, files = part / "shards", part / "files"
        shards.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(part).free
        have = sum(path.stat().st_size for path in shards.iterdir())
        if free < 2 * manifest.size - have:
            raise DiskFull(self.directory, manifest.size, f"{free} bytes are free, twice as due")
        fetch_shards(self._source, manifest, shards, deadline)
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir()
        join(manifest, shards, files)
        fsync_path(files)
        os.rename(files, target)
        fsync_path(self.directory)

    def _touch(self) -> None:
        """The stream is in use."""
        self.directory.mkdir(parents=True, exist_ok=True)
        os.utime(self.directory)

    def _part(self, version: int) -> Path:
        return self.directory / f"{TEMP_PREFIX}{version}"

    @contextmanager
    def _alone(self, version: int, deadline: Deadline) -> Iterator[None]:
        """Keep other processes from fetching into the directory; waits no longer than allowed."""
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if deadline.left <= 0:
                        raise TooSlow(version, deadline.seconds) from None
                    time.sleep(POLL_SECONDS)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _room(self, version: int) -> Iterator[None]:
        """A full disk is said as such, and what was fetched gives its room back."""
        try:
            yield
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            size = sum(path.stat().st_size for path in self._part(version).rglob("*.bin"))
            shutil.rmtree(self._part(version), ignore_errors=True)
            raise DiskFull(self.directory, size, str(error)) from error

    def _tidy(self, wanted: int) -> None:
        """Remove versions beyond those that are kept, and what is left of fetches."""
        older = [number for number in self.here()[: -self._keep] if number != wanted]
        gone = [self.directory / str(number) for number in older]
        for path in [*gone, *self.directory.glob(f"{TEMP_PREFIX}*")]:
            shutil.rmtree(path, ignore_errors=True)


def _remove_unused(directory: Path) -> None:
    """Remove streams that were not touched for `UNUSED_SECONDS`, but where somebody fetches."""
    for stream in directory.glob("*/*"):
        with suppress(OSError):  # gone, or locked
            handle = os.open(stream, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(handle).st_mtime > UNUSED_SECONDS:
                    gone = stream.with_name(f"{TEMP_PREFIX}{stream.name}")
                    stream.rename(gone)  # what a kill leaves of it is no stream
                    shutil.rmtree(gone)
            finally:
                os.close(handle)
