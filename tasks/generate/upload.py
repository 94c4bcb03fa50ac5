"""What a node may upload for a shard, and the trusted side's reading of it.

A file from a node is hostile. It is opened in a child process with little memory, and only if its
size, footer, row and column counts and schema are those that were asked for; the child gives back
an Arrow stream, or the reason why not. Nothing that the trusted side can compute itself (completion
text, ids, seeds, prompt) is taken from the file. Invariant: a file does no harm to the reading of
another one.
"""

import io
import os
import resource
import threading
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context, parent_process
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("output_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("proofs", pa.binary(), nullable=False),
        pa.field("engine", pa.string(), nullable=False),
        pa.field("seconds", pa.float32(), nullable=False),
        pa.field("transcript_hash", pa.binary(), nullable=False),
        pa.field("signature", pa.binary(), nullable=False),
    ]
)

MAX_FILE_BYTES = 256 << 20
MAX_UNPACKED_BYTES = 1 << 30
MAX_TABLE_BYTES = 256 << 20
"""Of the table in memory: as Python's numbers and lists it takes some ten times as much."""
MAX_ROWS = 100_000
READER_MEMORY = 6 << 30
"""Address space of the reading child: Arrow's allocator reserves a good part of it unused."""


KILLED = "not readable: reading it killed the reader"


class Reader:
    """Reads uploads in a confined child; thread-safe.

    One at a time, so that it is known which one killed the child. A killed child is replaced.
    """

    def __init__(self) -> None:
        self._child = make_reader()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Start the child, which takes seconds, without waiting for it."""
        self._child.submit(os.getpid)
        return self

    def ready(self) -> None:
        """Wait until the child can read; one that died is replaced when a file is to be read."""
        with self._lock, suppress(BrokenProcessPool):
            self._child.submit(os.getpid).result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child."""
        self.close()

    def close(self) -> None:
        """End the child."""
        self._child.shutdown(cancel_futures=True)

    def read(self, data: bytes, rows: int | None, schema: pa.Schema = SCHEMA) -> tuple[bytes, str]:
        """As `read_upload`."""
        with self._lock:
            try:
                return self._child.submit(read_upload, data, rows, schema).result()
            except BrokenProcessPool:
                self._child.shutdown()
                self._child = make_reader()
                return b"", KILLED


def make_reader() -> Executor:
    """The child of a `Reader`."""
    return ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), initializer=confine)


def confine() -> None:
    """Make a file that unpacks to more than its share fail here, and end with the parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_AS, (READER_MEMORY, READER_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with_parent() -> None:
    # A parent that was killed closes nothing, and the child would wait for work for ever.
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def read_upload(data: bytes, rows: int | None, schema: pa.Schema = SCHEMA) -> tuple[bytes, str]:
    """An Arrow stream of the table, or empty bytes and what is wrong. Runs in the child.

    `rows` is the number of rows that it must have; None: 1 to `MAX_ROWS`.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(data), thrift_string_size_limit=16 << 20)
        meta = file.metadata
        if rows is None and not 1 <= meta.num_rows <= MAX_ROWS:
            return b"", f"it has {meta.num_rows} rows, allowed are 1 to {MAX_ROWS}"
        if rows is not None and meta.num_rows != rows:
            return b"", f"it has {meta.num_rows} rows, the plan {rows}"
        if not file.schema_arrow.remove_metadata().equals(schema):
            return (
                b"",
                f"its columns are {file.schema_arrow.names}, not {schema.names} with our types",
            )
        unpacked = sum(meta.row_group(n).total_byte_size for n in range(meta.num_row_groups))
        if unpacked > MAX_UNPACKED_BYTES:
            return b"", f"it unpacks to {unpacked} bytes, allowed are {MAX_UNPACKED_BYTES}"
        table = file.read(use_threads=False)
        if table.nbytes > MAX_TABLE_BYTES:
            return b"", f"it is a table of {table.nbytes} bytes, allowed are {MAX_TABLE_BYTES}"
        table.validate(full=True)
        nulls = [f.name for f in schema if not f.nullable and table.column(f.name).null_count]
        if nulls:
            return b"", f"nulls in {nulls}"
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return sink.getvalue(), ""
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        return b"", f"not readable as parquet: {type(error).__name__}: {str(error)[:200]}"
