"""The same rows give the same bytes: in other chunks, after a read, in another process."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts import collect, generate
from infra.storage.parquet import ROWS_PER_GROUP, conform, fingerprint, parquet_bytes

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.int32())),
        pa.field("logprobs", pa.list_(pa.float32())),
        pa.field("proofs", pa.binary()),
        pa.field("prompt", pa.list_(pa.struct([("role", pa.string()), ("c", pa.large_string())]))),
    ]
)


def table(rows: int = 9000) -> pa.Table:
    return pa.table(
        {
            "id": [hashlib.sha256(str(i).encode()).hexdigest() for i in range(rows)],
            "tokens": [None if i % 7 == 0 else list(range(i % 50)) for i in range(rows)],
            "logprobs": [[-i / 3] * (i % 5) for i in range(rows)],
            "proofs": [hashlib.sha256(str(i).encode()).digest() * 9 for i in range(rows)],
            "prompt": [[{"role": "user", "c": f"é {i % 100}"}] for i in range(rows)],
        },
        schema=SCHEMA,
    )


def test_chunks_slices_and_reading_back_do_not_matter() -> None:
    whole = table()
    data = parquet_bytes(whole)
    chunked = pa.concat_tables([whole.slice(0, 17), whole.slice(17, 5000), whole.slice(5017)])
    longer = pa.concat_tables([whole.slice(100, 50), whole, whole.slice(3, 9)]).combine_chunks()
    noted = whole.replace_schema_metadata({"pandas": "{}"})
    again = pq.read_table(pa.BufferReader(data))
    for other in (chunked, longer.slice(50, 9000), noted, again, again.combine_chunks()):
        assert parquet_bytes(other) == data
    assert again.equals(whole)


def test_another_process_gives_the_same_bytes() -> None:
    code = (
        "import hashlib, test_parquet as t;"
        "print(hashlib.sha256(t.parquet_bytes(t.table(300))).hexdigest())"
    )
    here = Path(__file__)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{here.parents[3]}:{here.parent}", "PYTHONHASHSEED": "5", "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == hashlib.sha256(parquet_bytes(table(300))).hexdigest()


def test_form_of_the_file() -> None:
    meta = pq.read_metadata(pa.BufferReader(parquet_bytes(table())))
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [
        ROWS_PER_GROUP,
        ROWS_PER_GROUP,
        9000 - 2 * ROWS_PER_GROUP,
    ]
    column = meta.row_group(0).column(0)
    assert column.compression == "ZSTD" and column.has_offset_index and column.has_column_index


def test_a_change_in_one_row_keeps_most_bytes() -> None:
    whole = table(4000)
    changed = pa.concat_tables([whole.slice(0, 2000), whole.slice(10, 1), whole.slice(2000)])
    left, right = parquet_bytes(whole), parquet_bytes(changed)
    assert left[:4000] == right[:4000] and left != right


def test_empty_tables_and_null_columns_keep_their_types() -> None:
    for schema in (collect.SCHEMA, generate.SCHEMA):
        data = parquet_bytes(schema.empty_table())
        back = pq.read_table(pa.BufferReader(data))
        assert back.num_rows == 0 and back.schema.equals(schema)
        assert [f.nullable for f in back.schema] == [f.nullable for f in schema]


def test_fingerprint_sees_names_types_nulls_and_order() -> None:
    a, b = pa.field("a", pa.int32()), pa.field("b", pa.string())
    base = pa.schema([a, b])
    others = (
        pa.schema([b, a]),
        pa.schema([a]),
        pa.schema([a, b.with_name("c")]),
        pa.schema([a, b.with_type(pa.large_string())]),
        pa.schema([a, b.with_nullable(False)]),
    )
    assert len({fingerprint(schema) for schema in (base, *others)}) == 6
    assert fingerprint(base.with_metadata({"x": "y"})) == fingerprint(base)
    item = pa.schema([pa.field("t", pa.list_(pa.field("item", pa.int32())))])
    element = pa.schema([pa.field("t", pa.list_(pa.field("element", pa.int32())))])
    assert fingerprint(item) == fingerprint(element)


def test_conform_keeps_values() -> None:
    loose = pa.table({"b": ["x", None], "a": pa.array([1, 2], pa.int64())})
    schema = pa.schema(
        [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.large_string())]
    )
    made = conform(loose, schema, "t")
    assert made.schema == schema and made.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
