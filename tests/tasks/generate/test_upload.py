import io
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.storage.parquet import parquet_bytes
from tasks.generate import upload

ROW = {
    "trace_id": "t",
    "output_ids": [1, 2],
    "logprobs": [-0.5, -0.1],
    "status": "ok",
    "finish_reason": "stop",
    "error": None,
    "proofs": b"x" * 258,
    "engine": "transformers",
    "seconds": 1.0,
    "transcript_hash": b"h" * 32,
    "signature": b"s" * 64,
}


@pytest.fixture(scope="module")
def reader():
    with upload.Reader() as started:
        yield started


def read(reader, data: bytes, rows: int = 1):
    return reader.read(data, rows)


def written(rows=(ROW,), schema=upload.SCHEMA) -> bytes:
    return parquet_bytes(pa.Table.from_pylist(list(rows), schema=schema))


def test_an_honest_upload_comes_back_as_it_is(reader):
    stream, problem = read(reader, written())
    assert problem == ""
    assert pa.ipc.open_stream(stream).read_all().to_pylist()[0]["output_ids"] == [1, 2]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not readable"),
        (b"PAR1" + b"\xff" * 400 + b"PAR1", "not readable"),
        (written()[:-40], "not readable"),
        (b"PAR1 is how it starts, then text", "not readable"),
        (written([ROW, ROW]), "2 rows, the plan 1"),
        (written([]), "0 rows, the plan 1"),
    ],
    ids=["empty", "garbage", "cut", "text", "too many rows", "no rows"],
)
def test_what_is_not_the_file_asked_for_is_refused(reader, data, problem):
    stream, found = read(reader, data)
    assert stream == b""
    assert problem in found


def test_other_columns_are_refused(reader):
    more = upload.SCHEMA.append(pa.field("verification_info", pa.string()))
    _, found = read(reader, written([ROW | {"verification_info": "{}"}], more))
    assert "its columns are" in found


def test_nulls_where_none_belong_are_refused(reader):
    loose = pa.schema([field.with_nullable(True) for field in upload.SCHEMA])
    _, found = read(reader, written([ROW | {"output_ids": None}], loose))
    assert "columns" in found or "nulls" in found


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_and_the_reader_lives(reader):
    # One long text, stored once and pointed to by every row, packed to almost nothing.
    rows = 3000
    text = pa.array(["a" * 2_000_000])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), text)
    columns = [
        column if field.name == "error" else pa.array([ROW[field.name]] * rows, field.type)
        for field in upload.SCHEMA
    ]
    schema = upload.SCHEMA.set(
        upload.SCHEMA.get_field_index("error"), pa.field("error", column.type)
    )
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=schema), sink, store_schema=False, compression="zstd"
    )
    assert len(sink.getvalue()) < 4_000_000
    stream, found = read(reader, sink.getvalue(), rows)
    assert stream == b"" and found
    assert read(reader, written())[1] == ""


def test_a_small_file_of_many_numbers_is_refused(reader):
    """Equal numbers take no room in a file, and 36 bytes each in the flow's memory."""
    many = 40_000_000
    columns = [
        pa.ListArray.from_arrays(
            [0, many], pa.array(np.zeros(many, field.type.value_type.to_pandas_dtype()))
        )
        if pa.types.is_list(field.type)
        else pa.array([ROW[field.name]], field.type)
        for field in upload.SCHEMA
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=upload.SCHEMA), sink, compression="zstd")
    assert len(sink.getvalue()) < 1_000_000
    assert "allowed are" in read(reader, sink.getvalue())[1]


def test_a_file_that_kills_the_child_harms_no_other(reader):
    """The child ends in the middle of a file, while others wait."""
    assert read(reader, written())[1] == ""
    (child,) = reader._child._processes
    os.kill(child, signal.SIGSTOP)
    with ThreadPoolExecutor(5) as threads:
        found = [threads.submit(read, reader, written()) for _ in range(5)]
        threading.Timer(0.5, os.kill, (child, signal.SIGKILL)).start()
        problems = sorted(other.result()[1] for other in found)
    assert problems == [""] * 4 + [upload.KILLED]


def test_the_reader_ends_with_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal\n"
        "from tasks.generate.upload import make_reader\n"
        "if __name__ == '__main__':\n"
        "    print(make_reader().submit(os.getpid).result(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # A file, not a pipe: a child that outlives its parent would keep a pipe open.
    with (tmp_path / "out").open("w+") as out:
        done = subprocess.run([sys.executable, str(script)], stdout=out, timeout=240)
        out.seek(0)
        child = Path("/proc") / out.read().strip()
    assert done.returncode == -signal.SIGKILL and child.name.isdigit()
    deadline = time.monotonic() + 120
    while child.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
