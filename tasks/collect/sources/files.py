"""Task rows from JSONL, gzipped JSONL and parquet files at any fsspec URI.

A broken line costs that line; a file that breaks off costs the rest, with one bad row that says so.
A broken connection is an error, so that a run is never built on half a file.
"""

import gzip
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import IO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from infra.storage.remote import redact
from tasks.collect.config import FileSource
from tasks.collect.errors import SourceNotFound, SourceUnreachable
from tasks.collect.rows import Bad, Raw
from verifiers import strict_json

MAX_LINE = 64 * 1024 * 1024
"""Bytes; a file without line breaks must not fill the memory."""

BATCH = 256
"""Rows of a parquet file in memory at once; rows of public data can be long."""

_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


def read(source: FileSource) -> Iterator[Raw | Bad]:
    """The rows in the order of the file."""
    if not source.uri.endswith(_SUFFIXES):
        raise SourceNotFound(
            f"file source {source.uri!r}: the name ends with none of {', '.join(_SUFFIXES)}. "
            "Convert the file or rename it."
        )
    rows = _parquet(source.uri) if source.uri.endswith(".parquet") else _lines(source.uri)
    return islice(rows, source.limit or None)


def _open(uri: str) -> IO[bytes]:
    try:
        file: IO[bytes] = fsspec.open(uri, "rb").open()
        return file
    except (
        FileNotFoundError,
        PermissionError,
        IsADirectoryError,
        ValueError,
        ImportError,
    ) as error:
        raise SourceNotFound(
            f"file source {uri!r} cannot be opened: {redact(str(error))}. "
            "Give the path or URI of an existing file that this process may read."
        ) from error
    except Exception as error:  # each protocol has its own types for a broken connection
        raise _unreachable(uri, error) from error


def _unreachable(uri: str, error: Exception) -> SourceUnreachable:
    return SourceUnreachable(
        f"file source {uri!r} cannot be read: {redact(repr(error))}. "
        "Check the connection and the credentials, then run again."
    )


def _lines(uri: str) -> Iterator[Raw | Bad]:
    with _open(uri) as plain:
        file = gzip.open(plain) if uri.endswith(".gz") else plain
        number = 0
        while True:
            number += 1
            try:
                line = file.readline(MAX_LINE)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                reason = f"broken_file: nothing readable from here on: {error}"
                yield Bad({}, reason, f"{uri}:{number}")
                return
            except OSError as error:
                raise _unreachable(uri, error) from error
            if not line:
                return
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                text = line[:1000].decode("utf-8", "backslashreplace")
                yield Bad(
                    {"line": text}, f"line_too_long: over {MAX_LINE} bytes", f"{uri}:{number}"
                )
                return
            if line.strip():
                yield _row(line, uri, number)


def _row(line: bytes, uri: str, number: int) -> Raw | Bad:
    origin = f"{uri}:{number}"
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        shown = line.decode("utf-8", "backslashreplace")
        return Bad({"line": shown}, f"bad_utf8: {error.reason} at byte {error.start}", origin)
    try:
        row = strict_json.loads(text.removeprefix("\ufeff"), exact=False)
    except strict_json.InvalidJson as error:
        return Bad({"line": text}, f"bad_json: {error}", origin)
    if not isinstance(row, dict):
        return Bad({"line": text}, f"wrong_type: a {type(row).__name__}, not an object", origin)
    return Raw(row, uri, number)


def _parquet(uri: str) -> Iterator[Raw | Bad]:
    with _open(uri) as file:
        try:
            table = pq.ParquetFile(file)
        except (pa.ArrowException, OSError) as error:
            raise SourceNotFound(
                f"file source {uri!r} is not a readable parquet file: {error}. Write it again."
            ) from error
        first = 0
        for group in range(table.num_row_groups):
            place = first
            first += table.metadata.row_group(group).num_rows
            try:
                for batch in table.iter_batches(BATCH, row_groups=[group]):
                    for row in batch.to_pylist():
                        place += 1
                        yield Raw(row, uri, place)
            except (ConnectionError, TimeoutError) as error:
                raise _unreachable(uri, error) from error
            except (pa.ArrowException, OSError, ValueError) as error:
                reason = f"broken_file: rows up to {first} are not readable: {error}"
                yield Bad({}, reason, f"{uri}:{place + 1}")
