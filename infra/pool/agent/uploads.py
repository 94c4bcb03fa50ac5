"""Bring a file to where the pool keeps uploads, and say what it is."""

import hashlib
import os
import stat
from pathlib import Path, PurePosixPath

from infra.pool.client import PoolClient
from infra.pool.wire import MAX_UPLOAD_BYTES, StoredFile, UploadGrant, UploadRequest


def read_below(root: Path, name: str) -> bytes:
    """The bytes of a file below a directory in which somebody else writes at the same time.

    No link is followed on the way, whenever it is put there, or a container could have any file of
    this machine read. ValueError, OSError: it is not a file of an allowed size.
    """
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
        raise ValueError(f"{name[:200]!r} is no file below {root}")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    for number, part in enumerate(parts, 1):
        kind = os.O_DIRECTORY if number < len(parts) else os.O_NONBLOCK
        try:
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | kind, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    with os.fdopen(at, "rb") as file:
        found = os.fstat(at)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{name[:200]!r} is no file below {root}")
        data = file.read(MAX_UPLOAD_BYTES + 1)
    if len(data) > MAX_UPLOAD_BYTES:
        raise ValueError(f"{name[:200]!r} has more than {MAX_UPLOAD_BYTES} bytes")
    return data


def upload(
    client: PoolClient, data: bytes, name: str, task_id: str, shard_id: str = ""
) -> StoredFile:
    """PUT the bytes to the URL that the pool signs for them; what the pool then has to find."""
    if len(data) > MAX_UPLOAD_BYTES:
        raise ValueError(f"{name} has {len(data)} bytes; allowed are {MAX_UPLOAD_BYTES}")
    sha256 = hashlib.sha256(data).hexdigest()
    request = UploadRequest(
        file_name=name, file_size=len(data), sha256=sha256, task_id=task_id, shard_id=shard_id,
    )  # fmt: skip
    grant = client.call("POST", "/storage/request-upload", request, UploadGrant)
    client.put_file(grant.signed_url, data, grant.headers)
    return StoredFile(name=grant.file_name, sha256=sha256, size=len(data))
