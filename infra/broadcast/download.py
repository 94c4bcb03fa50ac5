"""The bytes of one version over HTTP: shards into a directory, files out of verified shards.

Invariants: a shard file that is complete here had the manifest's hash when this returned; bytes
that came are kept and asked for no more; at most the expected bytes are written, whatever is sent.
A shard may come from any source that has it, since its hash decides.
"""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from infra.broadcast.errors import BadManifest, CorruptShard, OriginFault, TooSlow, VersionGone
from infra.broadcast.manifest import Manifest, Shard, shard_name

PARALLEL = 4
"""Shards that are fetched at once."""
MAX_CORRUPT = 3
"""Times that a shard may come with other bytes than its hash says."""
REQUEST_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds between tries of a shard that does not come."""


@dataclass(frozen=True)
class Deadline:
    """Until when something has to be done."""

    at: float
    seconds: float
    """How long that was at the start."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """So many seconds from now."""
        return cls(time.monotonic() + seconds, seconds)

    @property
    def left(self) -> float:
        """Seconds that are left; negative when it is over."""
        return self.at - time.monotonic()


class Source:
    """Where the objects of one stream are served."""

    def __init__(self, url: str, stream: str, token: str):
        self._stream = stream
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/{stream}/",
            headers={"Accept-Encoding": "identity"}
            | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=REQUEST_SECONDS,
        )

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def get(self, name: str, most: int) -> bytes:
        """A small object, at most so many bytes."""
        try:
            with self._http.stream("GET", name) as answer:
                self._check(answer)
                data = b""
                # Raw: what unpacks to more than was sent would get around the limit.
                for block in answer.iter_raw():
                    data += block
                    if len(data) > most:
                        raise OriginFault(f"{name} has more than {most} bytes")
                return data
        except httpx.HTTPError as error:
            raise OriginFault(f"the origin at {self._http.base_url}: {error!r}") from error

    def append(self, name: str, path: Path, have: int, size: int, deadline: Deadline) -> int:
        """Bytes of a shard from `have` on, until it is whole or late or the answer ends."""
        wanted = {"Range": f"bytes={have}-{size - 1}"}
        wait = min(REQUEST_SECONDS, max(1.0, deadline.left))
        came = 0
        try:
            with self._http.stream("GET", name, headers=wanted, timeout=wait) as answer:
                self._check(answer)
                whole = answer.status_code != 206
                span = answer.headers.get("content-range", "")
                if not whole and not span.startswith(f"bytes {have}-"):
                    raise OriginFault(f"asked for {name} from {have}, got {span[:80]!r}")
                with open(path, "wb" if whole else "ab") as file:
                    left = size if whole else size - have
                    for block in answer.iter_raw():
                        file.write(block[:left])
                        came += len(block)
                        left -= len(block)
                        if left <= 0 or deadline.left <= 0:
                            break
        except httpx.HTTPError as error:
            raise OriginFault(f"the origin at {self._http.base_url}: {error!r}") from error
        return came

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code in (404, 410):
            raise VersionGone(self._stream, answer.request.url.path)
        if answer.status_code not in (200, 206):
            raise OriginFault(f"the origin answers {answer.request.url} with {answer.status_code}")


def fetch_shards(source: Source, manifest: Manifest, into: Path, deadline: Deadline) -> None:
    """All shards of a version as files of a directory, verified."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [
            pool.submit(_fetch, source, manifest.version, index, shard, into, deadline)
            for index, shard in enumerate(manifest.shards)
        ]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch(
    source: Source, version: int, index: int, shard: Shard, into: Path, deadline: Deadline
) -> None:
    path, name = into / shard_name(index), f"{version}/{shard_name(index)}"
    corrupt, pause = 0, FIRST_PAUSE
    while True:
        have = path.stat().st_size if path.exists() else 0
        if have >= shard.size:
            if _sha256(path) == shard.sha256:
                return
            path.unlink()
            have, corrupt = 0, corrupt + 1
            if corrupt >= MAX_CORRUPT:
                raise CorruptShard(version, index, corrupt)
        if deadline.left <= 0:
            raise TooSlow(version, deadline.seconds)
        try:
            if source.append(name, path, have, shard.size, deadline):
                pause = FIRST_PAUSE
                continue
        except OriginFault:
            pass
        time.sleep(max(0.0, min(pause, deadline.left)))
        pause = min(2 * pause, LONGEST_PAUSE)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def join(manifest: Manifest, shards: Path, into: Path) -> None:
    """Write the files of a version out of its verified shards."""
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
