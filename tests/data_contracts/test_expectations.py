"""What is decided before Great Expectations: schema, nulls, empty tables."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from mutations import KINDS

from data_contracts import generate
from data_contracts.errors import TableBlocked
from data_contracts.report import split


@pytest.fixture
def traces() -> pa.Table:
    return KINDS["traces"].table(KINDS["traces"].rows())


def test_missing_column_blocks_by_name(traces: pa.Table) -> None:
    report = generate.validate(traces.drop_columns(["proofs"]))
    assert report.blocking == ("column proofs is missing",)


def test_unknown_and_repeated_columns_block(traces: pa.Table) -> None:
    extra = traces.append_column("gold", traces.column("model"))
    assert generate.validate(extra).blocking == ("column gold is not in the contract",)
    twice = traces.append_column("model", traces.column("model"))
    assert "column model is there 2 times" in generate.validate(twice).blocking


def test_order_and_type_of_columns_are_part_of_the_contract(traces: pa.Table) -> None:
    names = traces.column_names
    moved = traces.select([*names[1:], names[0]])
    assert "order" in generate.validate(moved).blocking[0]
    wide = traces.set_column(
        names.index("sample_index"), "sample_index", traces.column("sample_index").cast("int64")
    )
    expected = "column sample_index is int64, the contract has int32"
    assert generate.validate(wide).blocking == (expected,)


def test_nulls_are_bad_rows_and_the_others_are_still_checked() -> None:
    kind = KINDS["traces"]
    rows = kind.rows()
    rows[1]["model"] = None
    rows[4]["output_ids"] = [1, None, 3]
    rows[5]["seed"] = 1
    report = kind.check(kind.table(rows))
    assert report.bad_rows == {
        1: "model_null: must not be null",
        4: "output_ids_items: must not hold nulls",
        5: "seed_recomputes: the seed comes from the trace id",
    }


def test_nulls_inside_messages_are_found_in_every_chunk() -> None:
    kind = KINDS["tasks"]
    rows = kind.rows()
    rows[6]["prompt"] = [{"role": "user", "content": None}]
    chunks = pa.concat_tables([kind.table(rows[:3]), kind.table(rows[3:])])
    assert kind.check(chunks).bad_rows == {6: "prompt_items: must not hold nulls"}


def test_only_null_rows() -> None:
    kind = KINDS["verdicts"]
    rows = [{**kind.row(0), "trace_id": None}]
    report = kind.check(kind.table(rows))
    assert list(report.bad_rows) == [0]
    good, bad = split(kind.table(rows), report)
    assert good.num_rows == 0 and bad == [(0, "trace_id_null: must not be null")]


@pytest.mark.parametrize("name", KINDS)
def test_empty_tables_are_decided_on_purpose(name: str) -> None:
    kind = KINDS[name]
    report = kind.check(kind.table([]))
    assert report.ok == (kind.contract.empty != "block")
    assert bool(report.warnings) == (kind.contract.empty == "warn")


def test_invalid_utf8_blocks() -> None:
    kind = KINDS["verdicts"]
    table = kind.table(kind.rows(1))
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pa.py_buffer(b"\xff")]
    )
    position = table.column_names.index("validator")
    table = table.set_column(position, kind.contract.schema.field("validator"), broken)
    assert "not valid Arrow data" in kind.check(table).blocking[0]


def test_split_keeps_order_and_refuses_blocked_tables(traces: pa.Table) -> None:
    kind = KINDS["traces"]
    rows = kind.rows()
    rows[2]["seed"] = 1
    table = kind.table(rows)
    good, bad = split(table, kind.check(table))
    assert good.column("trace_id").to_pylist() == [r["trace_id"] for r in rows if r is not rows[2]]
    assert [row for row, _ in bad] == [2]
    assert split(traces, generate.validate(traces)) == (traces, [])
    with pytest.raises(TableBlocked, match="proofs is missing"):
        split(traces, generate.validate(traces.drop_columns(["proofs"])))


def test_importing_a_contract_does_not_import_the_machinery() -> None:
    code = (
        "import sys, data_contracts.generate, data_contracts.publish;"
        "assert not {'great_expectations', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
