"""Contracts as plain data: rules that name a Great Expectations type, its arguments, an outcome.

Invariants: a rule whose outcome is `quarantine` points at rows; a rule about the whole table
blocks or warns. What the pandas engine cannot express across columns is a derived column, computed
from the Arrow table, that the rule expects to be true. Heavy columns (text, token ids, proofs)
never reach pandas: derived columns hold their lengths or flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from data_contracts.errors import ContractError

Outcome = Literal["block", "quarantine", "warn"]
SEVERITY: dict[str, str] = {"block": "critical", "quarantine": "warning", "warn": "info"}

ROW_TYPES = (
    "ExpectColumnValuesToBeBetween",
    "ExpectColumnValuesToBeInSet",
    "ExpectColumnValuesToBeUnique",
    "ExpectColumnValuesToMatchRegex",
    "ExpectCompoundColumnsToBeUnique",
)
TABLE_TYPES = ("ExpectColumnMeanToBeBetween", "ExpectColumnUniqueValueCountToBeBetween")


@dataclass(frozen=True)
class Rule:
    """One expectation and what follows when it does not hold."""

    name: str
    """Short and stable: quarantine reasons begin with it."""
    type: str
    kwargs: dict[str, Any]
    outcome: Outcome
    message: str
    """What is allowed."""

    def __post_init__(self) -> None:
        if self.type not in ROW_TYPES + TABLE_TYPES:
            raise ContractError(
                f"rule {self.name!r}: expectation {self.type!r} was not tried with the pandas "
                f"engine; there are {list(ROW_TYPES + TABLE_TYPES)}. Derive a column instead"
            )
        if self.outcome == "quarantine" and self.type in TABLE_TYPES:
            raise ContractError(
                f"rule {self.name!r}: {self.type} is about the whole table and points at no "
                "rows; its outcome must be block or warn"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the frame must hold for this rule."""
        return tuple(self.kwargs.get("column_list", ())) or (str(self.kwargs["column"]),)

    @property
    def reason(self) -> str:
        """Reason given to rows and reports; free of row values, so that reasons can be counted."""
        return f"{self.name}: {self.message}"


class Rows:
    """An Arrow table as python lists, each column converted once and only when asked for."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._lists: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._lists:
            self._lists[name] = self.table.column(name).to_pylist()
        return self._lists[name]

    def lengths(self, name: str) -> list[int]:
        """Items of a list column or bytes of a binary column, row by row."""
        column = self.table.column(name)
        is_list = pa.types.is_list(column.type)
        sizes = pc.list_value_length(column) if is_list else pc.binary_length(column)
        return [int(size) for size in sizes.to_pylist()]

    def all_items(self, name: str, holds: Callable[[pa.Array], pa.Array]) -> list[bool]:
        """Whether a vectorised condition holds for every item of a list column, row by row."""
        # Parent indices count within a chunk.
        column = self.table.column(name).combine_chunks()
        wrong = pc.invert(holds(pc.list_flatten(column)))
        rows = set(pc.list_parent_indices(column).filter(wrong).to_pylist())
        return [row not in rows for row in range(len(self))]


Derived = Callable[[Rows], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class Contract:
    """Everything that one table must keep."""

    name: str
    schema: pa.Schema
    rules: tuple[Rule, ...]
    derived: Mapping[str, Derived] = field(default_factory=dict)
    """Column that a rule names -> how it is computed."""
    empty: Literal["block", "warn", "allow"] = "block"
    """No rule can fail on no rows, so an empty table is decided here."""

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        known = set(self.schema.names) | set(self.derived)
        unknown = {column for rule in self.rules for column in rule.columns} - known
        unused = set(self.derived) - {column for rule in self.rules for column in rule.columns}
        if len(set(names)) != len(names) or unknown or unused:
            raise ContractError(
                f"contract {self.name!r}: rule names {sorted(names)} must differ; unknown columns "
                f"{sorted(unknown)}; derived columns without a rule {sorted(unused)}"
            )


def holds(name: str, outcome: Outcome, message: str) -> Rule:
    """The derived column `name` is true."""
    kwargs = {"column": name, "value_set": [True]}
    return Rule(name, "ExpectColumnValuesToBeInSet", kwargs, outcome, message)


def in_set(column: str, values: Sequence[str], outcome: Outcome = "quarantine") -> Rule:
    """The column has one of the values."""
    kwargs = {"column": column, "value_set": list(values)}
    message = f"must be one of {', '.join(values)}"
    return Rule(f"{column}_known", "ExpectColumnValuesToBeInSet", kwargs, outcome, message)


def matches(column: str, regex: str, message: str, outcome: Outcome = "quarantine") -> Rule:
    """The text matches."""
    kwargs = {"column": column, "regex": regex}
    return Rule(f"{column}_form", "ExpectColumnValuesToMatchRegex", kwargs, outcome, message)


def at_least(column: str, low: float, outcome: Outcome = "quarantine") -> Rule:
    """The number is not below `low`."""
    kwargs = {"column": column, "min_value": low}
    message = f"must be at least {low}"
    return Rule(f"{column}_range", "ExpectColumnValuesToBeBetween", kwargs, outcome, message)


def unique(*columns: str, outcome: Outcome = "block") -> Rule:
    """No two rows agree in the columns."""
    name, message = f"{'_'.join(columns)}_unique", f"{', '.join(columns)} must not repeat"
    if len(columns) == 1:
        kwargs: dict[str, Any] = {"column": columns[0]}
        return Rule(name, "ExpectColumnValuesToBeUnique", kwargs, outcome, message)
    kwargs = {"column_list": list(columns)}
    return Rule(name, "ExpectCompoundColumnsToBeUnique", kwargs, outcome, message)


def single(column: str) -> Rule:
    """All rows of the table agree in the column."""
    kwargs = {"column": column, "min_value": 1, "max_value": 1}
    message = f"a shard has one {column}"
    return Rule(
        f"{column}_single", "ExpectColumnUniqueValueCountToBeBetween", kwargs, "block", message
    )
