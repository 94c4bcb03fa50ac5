"""Uploads of rollouts as files: there, whole, small enough, of the contract's schema."""

import hashlib
import io
from typing import Any

import pyarrow as pa

from data_contracts import rollouts as contract
from infra.pool import JobResult
from infra.storage import Store
from infra.storage.errors import StorageError
from tasks.generate.upload import MAX_FILE_BYTES, Reader


class BadFile(Exception):
    """The reason why a file is not looked at further, as "code: what was found"."""

    def __init__(self, reason: str, sha256: str = ""):
        self.reason, self.sha256 = reason, sha256
        super().__init__(reason)


class UploadReader(Reader):
    """Reads uploads as files of rollouts."""

    def read_file(
        self, store: Store, result: JobResult, rows: int
    ) -> tuple[str, list[dict[str, Any]]]:
        """sha256 and rows of the file that a node made; BadFile if it is not what was asked for."""
        if len(result.files) != 1:
            raise BadFile(f"other_files: {len(result.files)} files, one is wanted")
        (file,) = result.files
        if file.size > MAX_FILE_BYTES:
            raise BadFile(f"upload_too_large: {file.size} bytes, allowed are {MAX_FILE_BYTES}")
        try:
            data = store.read_bytes(file.path)
        except StorageError as error:
            raise BadFile(f"upload_missing: {error}") from error
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 != file.sha256:
            raise BadFile("sha256_differs: the file is not the one that the node reported", sha256)
        stream, problem = self.read(data, rows, contract.SCHEMA)
        if problem:
            unreadable = problem.startswith("not readable")
            code = "unreadable_upload" if unreadable else "wrong_schema"
            raise BadFile(f"{code}: {problem}", sha256)
        table: pa.Table = pa.ipc.open_stream(io.BytesIO(stream)).read_all()
        return sha256, table.to_pylist()
