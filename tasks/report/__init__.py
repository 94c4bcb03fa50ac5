"""The report: where every row of a run went, as data, text and a page."""

from tasks.report.funnel import funnel, write_funnel
from tasks.report.html import write_report
from tasks.report.markdown import funnel_markdown
from tasks.report.model import Funnel, SolveRow, StageRow
from tasks.report.tables import (
    Table,
    answers_table,
    funnel_table,
    missing_table,
    published_table,
)

__all__ = [
    "Funnel",
    "SolveRow",
    "StageRow",
    "Table",
    "answers_table",
    "funnel",
    "funnel_markdown",
    "funnel_table",
    "missing_table",
    "published_table",
    "write_funnel",
    "write_report",
]
