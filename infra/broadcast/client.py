"""Versions fetched from an origin, whole and verified.

`<directory>/<stream>/<version>/` holds the files of a version. Invariants: that directory appears
by one rename, after every shard had the hash that the publisher signed, or not at all; who asks for
the newest never gets an older one than is here, whatever the origin offers. Shards that came, also
in part, stay until the version is whole, and a fetch that was killed goes on where it was. Several
processes may share a directory: one fetches, the others wait for it.
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from infra.broadcast.errors import (
    BadManifest,
    BroadcastError,
    CorruptShard,
    DiskFull,
    NoVersion,
    OriginFault,
    TooSlow,
    VersionGone,
)
from infra.broadcast.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    Manifest,
    Shard,
    parse,
    shard_name,
)
from infra.broadcast.origin import published
from infra.broadcast.service import TOKEN_VARIABLE
from infra.storage.layout import segment
from infra.storage.local import TEMP_PREFIX, directory_lock, fsync_directory

PARALLEL = 4
"""Shards that are fetched at once."""
MAX_CORRUPT = 3
"""Times that a shard may come with other bytes than its hash says."""
REQUEST_SECONDS = 30.0
POLL_SECONDS = 0.25
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        self.directory = directory / self._stream
        self.directory.mkdir(parents=True, exist_ok=True)
        token = os.environ.get(TOKEN_VARIABLE, "")
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/{self._stream}/",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=REQUEST_SECONDS,
            # An answer that unpacks to more than was asked for would get around the limits.
            follow_redirects=False,
        )

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def here(self) -> list[int]:
        """Versions that are on this machine, ascending."""
        return published(self.directory)

    def offered(self) -> list[int]:
        """Versions that the origin says it has, ascending. A hint: only manifests are signed."""
        try:
            given = self._get("versions", MAX_MANIFEST_BYTES)
            listed = httpx.Response(200, content=given).json()["versions"]
            return sorted(number for number in listed if type(number) is int and number >= 0)
        except (ValueError, KeyError, TypeError) as error:
            raise OriginFault(f"the origin's list of versions is none: {error!r}") from error

    def newest(self, least: int, most: int, seconds: float) -> Version:
        """The newest version from `least` to `most`, fetched if need be; waits for one to come.

        An origin that fails, or that offers older versions than before, does no harm while a
        version of the range is here.
        """
        deadline, last = time.monotonic() + seconds, ""
        while True:
            present = [number for number in self.here() if least <= number <= most]
            newest_here = present[-1] if present else -1
            try:
                for number in reversed(self.offered()):
                    if max(least, newest_here + 1) <= number <= most:
                        return self.fetch(number, max(deadline - time.monotonic(), 1.0))
            except BroadcastError as error:
                last = str(error)
            if present:
                return Version(newest_here, self.directory / str(newest_here))
            if time.monotonic() > deadline:
                raise NoVersion(self._stream, least, most, seconds, last)
            time.sleep(POLL_SECONDS)

    def fetch(self, version: int, seconds: float) -> Version:
        """A version, fetched unless it is here. Older ones than the `keep` newest go."""
        target = self.directory / str(version)
        deadline = time.monotonic() + seconds
        if not target.is_dir():
            with directory_lock(self.directory), self._room(version):
                if not target.is_dir():
                    self._fetch(version, target, deadline, seconds)
                    self._tidy(version)
        return Version(version, target)

    def _fetch(self, version: int, target: Path, deadline: float, seconds: float) -> None:
        manifest = self._manifest(version)
        part = self.directory / f"{TEMP_PREFIX}{version}"
        shards = part / "shards"
        shards.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(part).free
        have = sum(path.stat().st_size for path in shards.iterdir())
        if free < 2 * manifest.size - have:
            raise DiskFull(self.directory, manifest.size, f"{free} bytes are free, twice as due")
        with ThreadPoolExecutor(PARALLEL) as pool:
            jobs = [
                pool.submit(self._shard, version, index, shard, shards, deadline, seconds)
                for index, shard in enumerate(manifest.shards)
            ]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        whole = part / "files"
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        _join(manifest, shards, whole)
        os.rename(whole, target)
        fsync_directory(self.directory)

    def _manifest(self, version: int) -> Manifest:
        data = self._get(f"{version}/{MANIFEST_NAME}", MAX_MANIFEST_BYTES)
        return parse(data, self._publisher, self._stream, version)

    def _shard(
        self, version: int, index: int, shard: Shard, into: Path, deadline: float, seconds: float
    ) -> None:
        path, corrupt, pause = into / shard_name(index), 0, POLL_SECONDS
        while True:
            try:
                if path.exists() and path.stat().st_size >= shard.size:
                    if _sha256(path) == shard.sha256:
                        return
                    corrupt += 1
                    path.unlink()
                    if corrupt >= MAX_CORRUPT:
                        raise CorruptShard(version, index, corrupt)
                if time.monotonic() > deadline:
                    raise TooSlow(version, seconds)
                self._append(f"{version}/{shard_name(index)}", path, shard.size, deadline)
            except (httpx.HTTPError, OriginFault):
                if time.monotonic() > deadline:
                    raise TooSlow(version, seconds) from None
                time.sleep(pause)
                pause = min(2 * pause, 5.0)

    def _append(self, name: str, path: Path, size: int, deadline: float) -> None:
        """Bytes of a shard from where they ended, until it is whole, late or the answer ends."""
        have = path.stat().st_size if path.exists() else 0
        with (
            self._http.stream("GET", name, headers={"Range": f"bytes={have}-{size - 1}"}) as got,
            open(path, "ab") as file,
        ):
            self._check(got)
            if got.status_code != 206:
                file.truncate(have := 0)
            elif not got.headers.get("content-range", "").startswith(f"bytes {have}-"):
                raise OriginFault(f"asked for {name} from {have}, got other bytes of it")
            for block in got.iter_raw():
                file.write(block[: size - have])
                have += len(block)
                if have >= size or time.monotonic() > deadline:
                    return

    def _get(self, name: str, most: int) -> bytes:
        """A small object, at most so many bytes."""
        try:
            with self._http.stream("GET", name) as got:
                self._check(got)
                data = b""
                for block in got.iter_raw():
                    data += block
                    if len(data) > most:
                        raise OriginFault(f"{name} has more than {most} bytes")
                return data
        except httpx.HTTPError as error:
            raise OriginFault(f"the origin at {self._http.base_url}: {error!r}") from error

    def _check(self, got: httpx.Response) -> None:
        if got.status_code in (404, 410):
            raise VersionGone(self._stream, _number_in(got))
        if got.status_code not in (200, 206):
            raise OriginFault(f"the origin answers {got.request.url} with {got.status_code}")

    @contextmanager
    def _room(self, version: int) -> Iterator[None]:
        """A full disk is said as such, and what was fetched gives its room back."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            part = self.directory / f"{TEMP_PREFIX}{version}"
            size = sum(path.stat().st_size for path in part.rglob("*.bin"))
            shutil.rmtree(part, ignore_errors=True)
            raise DiskFull(self.directory, size, str(error)) from error

    def _tidy(self, wanted: int) -> None:
        """Remove versions beyond those that are kept, and what is left of fetches."""
        older = [number for number in self.here()[: -self._keep] if number != wanted]
        gone = [self.directory / str(number) for number in older]
        for path in [*gone, *self.directory.glob(f"{TEMP_PREFIX}*")]:
            shutil.rmtree(path, ignore_errors=True)


def _number_in(got: httpx.Response) -> int:
    part = got.request.url.path.split("/")[-2]
    return int(part) if part.isdecimal() else -1


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _join(manifest: Manifest, shards: Path, into: Path) -> None:
    """Write the files out of shards that were verified."""
    index, source = 0, open(shards / shard_name(0), "rb")
    try:
        for entry in manifest.files:
            with open(into / entry.name, "xb") as file:
                left = entry.size
                while left:
                    block = source.read(min(left, 1 << 20))
                    if not block:
                        source.close()
                        index += 1
                        if index == len(manifest.shards):
                            raise BadManifest(f"the shards end within {entry.name}")
                        source = open(shards / shard_name(index), "rb")
                        continue
                    file.write(block)
                    left -= len(block)
                file.flush()
                os.fsync(file.fileno())
    finally:
        source.close()
