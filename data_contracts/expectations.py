"""The common check: Arrow schema first, then the rules, then a report.

Order and why: types and nulls are decided on the Arrow schema, where they are exact; an empty
table is decided by the contract, because every rule holds on no rows; only then a small frame is
built from the rows without nulls and given to Great Expectations.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from data_contracts.engine import failures
from data_contracts.errors import ExpectationFault
from data_contracts.report import Report, make_report
from data_contracts.rules import Contract, Rows

_SHOWN_ROWS = 5


def check(contract: Contract, table: pa.Table) -> Report:
    """What the contract says about a table."""
    blocking = schema_problems(contract.schema, table)
    if blocking:
        return make_report(blocking, [], {})
    warnings: list[str] = []
    if table.num_rows == 0:
        finding = f"{contract.name}: the table has no rows"
        blocks = contract.empty == "block"
        return make_report([finding] if blocks else [], [finding] * (contract.empty == "warn"), {})
    bad_rows = null_rows(contract.schema, table)
    kept = [number for number in range(table.num_rows) if number not in bad_rows]
    if not kept:
        return make_report([], [], bad_rows)
    rows = table.take(pa.array(kept, pa.int64())) if bad_rows else table
    for failure in failures(contract, frame_of(contract, rows)):
        rule, found = failure.rule, failure.rows or ()
        where = ", ".join(str(kept[row]) for row in found[:_SHOWN_ROWS])
        counted = f" ({len(found)} rows, first {where})" if found else ""
        if rule.outcome == "block":
            blocking.append(rule.reason + counted)
        elif rule.outcome == "warn":
            warnings.append(rule.reason + counted)
        else:
            for row in found:
                bad_rows.setdefault(kept[row], []).append(rule.reason)
    return make_report(blocking, warnings, bad_rows)


def load(contract: Contract) -> None:
    """Import and build what the first check of a process needs, which takes seconds."""
    failures(contract, frame_of(contract, contract.schema.empty_table()))


def schema_problems(schema: pa.Schema, table: pa.Table) -> list[str]:
    """Differences in columns and types, and data that are not what their type says."""
    want, have = schema.names, table.column_names
    problems = [f"column {name} is missing" for name in want if name not in have]
    problems += [f"column {name} is not in the contract" for name in have if name not in want]
    if not problems and have != want:
        problems.append(f"columns are in the order {have}, the contract has {want}")
    for field in schema:
        if have.count(field.name) > 1:
            problems.append(f"column {field.name} is there {have.count(field.name)} times")
        elif field.name in have and table.schema.field(field.name).type != field.type:
            found = table.schema.field(field.name).type
            problems.append(f"column {field.name} is {found}, the contract has {field.type}")
    if not problems:
        try:
            table.validate(full=True)
        except pa.ArrowException as error:
            problems.append(f"the table is not valid Arrow data ({error})")
    return problems


def null_rows(schema: pa.Schema, table: pa.Table) -> dict[int, list[str]]:
    """Rows with a null in a column that allows none, also inside lists and structs."""
    found: dict[int, list[str]] = {}
    for field in schema:
        column = table.column(field.name)
        if not field.nullable and column.null_count:
            for row in pc.indices_nonzero(pc.is_null(column)).to_pylist():
                found.setdefault(row, []).append(f"{field.name}_null: must not be null")
        if pa.types.is_list(field.type):
            for row in _rows_with_null_items(column):
                found.setdefault(row, []).append(f"{field.name}_items: must not hold nulls")
    return found


def _rows_with_null_items(chunked: pa.ChunkedArray) -> list[int]:
    # Parent indices count within a chunk.
    column = chunked.combine_chunks()
    flat = pc.list_flatten(column)
    null = pc.is_null(flat)
    if pa.types.is_struct(flat.type):
        for index in range(flat.type.num_fields):
            null = pc.or_(null, pc.is_null(pc.struct_field(flat, [index])))
    if not pc.any(null).as_py():
        return []
    parents = pc.list_parent_indices(column)
    return sorted(set(parents.filter(null).to_pylist()))


def frame_of(contract: Contract, table: pa.Table) -> Any:
    """The pandas frame with just the columns that rules name."""
    import pandas as pd

    rows = Rows(table)
    columns: dict[str, Any] = {}
    for rule in contract.rules:
        for name in rule.columns:
            if name in columns:
                continue
            if name in contract.derived:
                columns[name] = _derive(contract, name, rows)
            else:
                columns[name] = table.column(name).to_pandas()
    return pd.DataFrame(columns)


def _derive(contract: Contract, name: str, rows: Rows) -> list[Any]:
    try:
        values = list(contract.derived[name](rows))
    except Exception as error:
        raise ExpectationFault(
            f"contract {contract.name!r}: the derived column {name!r} failed with {error!r}; "
            "derived columns must hold for any row that fits the schema. Repair the contract"
        ) from error
    if len(values) != len(rows):
        raise ExpectationFault(
            f"contract {contract.name!r}: the derived column {name!r} has {len(values)} values "
            f"for {len(rows)} rows. Repair the contract"
        )
    return values
