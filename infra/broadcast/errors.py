"""Faults of weight broadcast; `retryable` says whether the same call may succeed later."""

import errno
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a write says when there is no room for it."""


class BroadcastError(Exception):
    """Base of everything that broadcasting raises on purpose."""

    retryable: bool = False


class BadManifest(BroadcastError):
    """A manifest that is none, or that its publisher did not sign."""


class VersionTaken(BroadcastError):
    """Other content was published under the version."""

    def __init__(self, stream: str, version: int):
        super().__init__(
            f"version {version} of {stream!r} was published with other content; a version never "
            "changes: publish the new weights under the next number"
        )


class VersionGoesBack(BroadcastError):
    """A version below the newest."""

    def __init__(self, stream: str, version: int, newest: int):
        super().__init__(
            f"version {version} of {stream!r} is below the newest, {newest}; versions only grow: "
            f"publish at least {newest + 1}, or give the stream another name"
        )


class NothingToPublish(BroadcastError):
    """A directory that cannot be a version."""


class VersionGone(BroadcastError):
    """The origin does not have the version, or no more."""

    def __init__(self, stream: str, path: str):
        super().__init__(
            f"{path} of {stream!r} is not at the origin (any more): ask for a newer version"
        )


class NoVersion(BroadcastError):
    """No version of a range came in time."""

    retryable = True

    def __init__(self, stream: str, least: int, most: int, seconds: float, last: str):
        super().__init__(
            f"no version from {least} to {most} of {stream!r} after {seconds:.0f} s"
            f"{f' (the last fault: {last})' if last else ''}; try again when it is published"
        )


class OriginFault(BroadcastError):
    """The origin does not answer, or not as an origin does."""

    retryable = True


class TooSlow(BroadcastError):
    """A version that did not come in time; what came is kept and used by the next try."""

    retryable = True

    def __init__(self, version: int, seconds: float):
        super().__init__(
            f"version {version} was not there after {seconds:.0f} s; what came is kept, try again"
        )


class CorruptShard(BroadcastError):
    """A shard whose bytes are not those of the manifest, several times."""

    retryable = True

    def __init__(self, version: int, shard: int, tries: int):
        super().__init__(
            f"shard {shard} of version {version} came {tries} times with other bytes than its "
            "manifest says: take the next version, or another origin"
        )


class DiskFull(BroadcastError):
    """No room for a version."""

    retryable = True

    def __init__(self, directory: Path, needed: int, problem: str):
        super().__init__(
            f"a version of {needed} bytes does not fit below {directory} ({problem}); make room, "
            "or give another directory. Nothing of it is in use"
        )


class OpenOrigin(BroadcastError):
    """An origin that strangers could read."""

    def __init__(self, host: str):
        super().__init__(
            f"host {host!r} is not loopback and there is no token: set TRACEMILL_BROADCAST_TOKEN "
            "for the origin and its clients"
        )
