"""Tables as parquet bytes that depend on content and schema alone.

Invariants: the same rows under the same schema give the same bytes in every process, however the
table was chunked, sliced or read before: fixed row groups, one contiguous chunk per column in
each, no metadata, no times. Content-defined chunking keeps most pages when a few rows change.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts.ids import canonical_json
from infra.storage.errors import SchemaMismatch

ROWS_PER_GROUP = 4096


def parquet_bytes(table: pa.Table) -> bytes:
    """The one parquet file of a table."""
    schema = _plain(table.schema)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=3,
        write_page_index=True,
        use_content_defined_chunking=True,
    ) as writer:
        for start in range(0, max(table.num_rows, 1), ROWS_PER_GROUP):
            group = table.slice(start, ROWS_PER_GROUP)
            columns = [_contiguous(column) for column in group.columns]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), ROWS_PER_GROUP)
    return bytes(sink.getvalue())


def fingerprint(schema: pa.Schema) -> str:
    """Hash over names, types and nullability, in order."""
    fields = [[field.name, str(field.type), field.nullable] for field in _plain(schema)]
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()[:32]


def conform(table: pa.Table, schema: pa.Schema, shown: str) -> pa.Table:
    """`table` with exactly the columns of `schema`, in its order and types, or an error."""
    have, want = table.column_names, schema.names
    unknown, missing = sorted(set(have) - set(want)), [n for n in want if n not in have]
    if unknown or missing or len(have) != len(want):
        raise SchemaMismatch(
            f"{shown}: unknown columns {unknown}, missing columns {missing}, {len(have)} in all; "
            f"the contract has {want}. Build the table with data_contracts.text.table_from_rows"
        )
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type, safe=True)
            except pa.ArrowException as error:
                raise SchemaMismatch(
                    f"{shown}: column {field.name!r} is {column.type} and cannot become "
                    f"{field.type} without loss ({error}). Write it in the contract's type"
                ) from error
        if not field.nullable and column.null_count:
            raise SchemaMismatch(
                f"{shown}: column {field.name!r} holds {column.null_count} nulls; the contract "
                "allows none. Validate the table and quarantine those rows first"
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema.remove_metadata())


def _contiguous(column: pa.ChunkedArray) -> pa.Array:
    # concat_arrays copies: offsets of a slice and the layout of chunks do not reach the writer.
    chunks = column.chunks or [pa.array([], type=column.type)]
    return pa.concat_arrays(chunks)


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type), nullable=field.nullable)


def _plain_type(type_: pa.DataType) -> pa.DataType:
    # The name of a list's child differs between built and read tables; it is stored in the file.
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _plain_type(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(type_.field(i)) for i in range(type_.num_fields)])
    return type_
