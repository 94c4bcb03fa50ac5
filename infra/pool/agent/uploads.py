"""Bring a file to where the pool keeps uploads, and say what it is."""

import hashlib

from infra.pool.client import PoolClient
from infra.pool.wire import MAX_UPLOAD_BYTES, StoredFile, UploadGrant, UploadRequest


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
