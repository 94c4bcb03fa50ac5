"""No key, no row and no broken text gets lost on the way into a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from data_contracts.errors import BadRow
from data_contracts.fields import MESSAGES, required
from data_contracts.text import clean_text, table_from_rows

SCHEMA = pa.schema([required("a", pa.int64()), pa.field("b", pa.large_string())])


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert clean_text("ok \ud83d") == "ok \ufffd"
    assert clean_text("\ud83d\ude00") == "\U0001f600"
    assert clean_text("plain é") == "plain é"


def test_text_is_cleaned_inside_messages() -> None:
    schema = pa.schema([required("prompt", MESSAGES)])
    table = table_from_rows([{"prompt": [{"role": "user", "content": "x\udc00"}]}], schema)
    assert table.column("prompt").to_pylist() == [[{"role": "user", "content": "x\ufffd"}]]


def test_keys_that_only_later_rows_have_are_an_error() -> None:
    with pytest.raises(BadRow, match=r"row 1: unknown keys \['c'\]"):
        table_from_rows([{"a": 1, "b": None}, {"a": 2, "b": "x", "c": 3}], SCHEMA)
    with pytest.raises(BadRow, match=r"row 0: .* missing keys \['b'\]"):
        table_from_rows([{"a": 1}], SCHEMA)


def test_values_that_do_not_fit_name_row_and_key() -> None:
    with pytest.raises(BadRow, match="row 1, key 'a': 1180591620717411303424"):
        table_from_rows([{"a": 1, "b": None}, {"a": 2**70, "b": None}], SCHEMA)
    with pytest.raises(BadRow, match="row 0, key 'b'"):
        table_from_rows([{"a": 1, "b": {"x": 1}}], SCHEMA)


def test_an_all_null_column_keeps_its_type() -> None:
    table = table_from_rows([{"a": 1, "b": None}] * 3, SCHEMA)
    assert table.schema == SCHEMA
    assert table_from_rows([], SCHEMA).schema == SCHEMA
