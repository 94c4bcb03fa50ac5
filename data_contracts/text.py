"""Rows to Arrow tables without silent loss: every key accounted for, every text valid UTF-8.

`pa.Table.from_pylist` takes the columns from the first row and drops later keys; one lone
surrogate in one row fails the whole shard. Neither may happen here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from data_contracts.errors import BadRow


def clean_text(text: str) -> str:
    """Valid Unicode: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean(value: Any) -> Any:
    """`clean_text` on every text inside lists and objects; other values as they are."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def table_from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """A table with exactly the columns of `schema`; a null goes in as an explicit None."""
    names = list(schema.names)
    known = set(names)
    for number, row in enumerate(rows):
        if row.keys() != known:
            unknown, missing = sorted(row.keys() - known), sorted(known - row.keys())
            raise BadRow(
                f"row {number}: unknown keys {unknown}, missing keys {missing}; the schema has "
                f"{names}. Write a null as an explicit None"
            )
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if "string" in str(field.type):
            values = [clean(value) for value in values]
        columns.append(_column(values, field))
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        number = _first_bad(values, field)
        received = repr(values[number])[:120] if number < len(values) else "the whole column"
        raise BadRow(
            f"row {number}, key {field.name!r}: {received} does not fit {field.type} ({error}); "
            "convert it, or quarantine the row"
        ) from error


def _first_bad(values: list[Any], field: pa.Field) -> int:
    for number, value in enumerate(values):
        try:
            pa.array([value], type=field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return number
    return len(values)
