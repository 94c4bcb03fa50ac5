"""Render the splits to the files of a version.

Invariant: the bytes are a function of the tables and the options; the version is a function of the
bytes. So the same content published twice, from any run, is the same version with the same files.
"""

import hashlib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts.ids import content_id
from infra.storage import parquet_bytes

VERSION_LENGTH = 16


@dataclass(frozen=True, slots=True)
class File:
    """One file of a version, path relative to the version's folder."""

    path: str
    data: bytes
    sha256: str
    config: str | None = None
    rows: int | None = None


def make_file(
    path: str, data: bytes, *, config: str | None = None, rows: int | None = None
) -> File:
    """A file with its hash."""
    return File(path, data, hashlib.sha256(data).hexdigest(), config, rows)


def parquet_files(config: str, table: pa.Table, rows_per_file: int) -> list[File]:
    """`<config>/train-00000-of-0000N.parquet`; a table without rows still gives one file."""
    count = max(1, -(-table.num_rows // rows_per_file))
    files = []
    for index in range(count):
        part = table.slice(index * rows_per_file, rows_per_file)
        path = f"{config}/train-{index:05d}-of-{count:05d}.parquet"
        files.append(make_file(path, _bytes_of(part), config=config, rows=part.num_rows))
    return files


def _bytes_of(table: pa.Table) -> bytes:
    data = parquet_bytes(table)
    if table.num_rows:
        return data
    # `datasets` fails on a row group without rows and opens a file without row groups
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pq.read_schema(pa.BufferReader(data)).remove_metadata()).close()
    return bytes(sink.getvalue())


def version_of(files: list[File]) -> str:
    """The version that holds exactly these files."""
    return content_id({file.path: file.sha256 for file in files})[:VERSION_LENGTH]
