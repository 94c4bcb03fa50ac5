"""Uploads of rollouts as files: there, whole, small enough, of the contract's schema."""

import hashlib
import io
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from data_contracts import rollouts as contract
from infra.pool import JobResult
from infra.storage import Store
from infra.storage.errors import StorageError
from tasks.generate.upload import MAX_FILE_BYTES, make_reader, read_upload


class BadFile(Exception):
    """The reason why a file is not looked at further, as "code: what was found"."""

    def __init__(self, reason: str, sha256: str = ""):
        self.reason, self.sha256 = reason, sha256
        super().__init__(reason)


class UploadReader:
    """Reads uploads in a confined child; a child that a file kills is replaced."""

    def __init__(self) -> None:
        self._child = make_reader()

    def __enter__(self) -> Self:
        """The child starts with the first upload."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child."""
        self._child.shutdown()

    def read(self, store: Store, result: JobResult, rows: int) -> tuple[str, list[dict[str, Any]]]:
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
        try:
            stream, problem = self._child.submit(read_upload, data, rows, contract.SCHEMA).result()
        except BrokenProcessPool as error:
            self._child.shutdown()
            self._child = make_reader()
            raise BadFile("unreadable_upload: the reader died of it", sha256) from error
        if problem:
            unreadable = problem.startswith("not readable")
            code = "unreadable_upload" if unreadable else "wrong_schema"
            raise BadFile(f"{code}: {problem}", sha256)
        table: pa.Table = pa.ipc.open_stream(io.BytesIO(stream)).read_all()
        return sha256, table.to_pylist()
