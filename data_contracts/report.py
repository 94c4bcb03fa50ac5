"""What a check of a table says, and how rows are set aside by it.

Invariant: `ok` means that the table may be committed as it is. `blocking` means that it must not
be committed at all; `bad_rows` are set aside (quarantined), the other rows go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from data_contracts.errors import TableBlocked


@dataclass(frozen=True)
class Report:
    """Result of one contract on one table."""

    ok: bool
    blocking: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    bad_rows: dict[int, str] = field(default_factory=dict)
    """Row number -> reasons, joined by `; `."""


def make_report(blocking: list[str], warnings: list[str], bad_rows: dict[int, list[str]]) -> Report:
    """A report with rows in order and reasons joined."""
    rows = {number: "; ".join(bad_rows[number]) for number in sorted(bad_rows)}
    return Report(not blocking and not rows, tuple(blocking), tuple(warnings), rows)


def split(table: pa.Table, report: Report) -> tuple[pa.Table, list[tuple[int, str]]]:
    """The rows that go on, and (row number, reason) of those set aside."""
    if report.blocking:
        raise TableBlocked(
            f"the table of {table.num_rows} rows is blocked as a whole: "
            f"{'; '.join(report.blocking)}. Repair the writer; only tables without blocking "
            "findings can be split"
        )
    if not report.bad_rows:
        return table, []
    keep = pa.array([number not in report.bad_rows for number in range(table.num_rows)], pa.bool_())
    return table.filter(keep), list(report.bad_rows.items())
