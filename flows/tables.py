"""Tables of a run on the terminal."""

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from tasks.report.model import Funnel
from tasks.report.tables import (
    Table,
    answers_table,
    funnel_table,
    missing_table,
    published_table,
)


def rich_table(table: Table) -> RichTable:
    """A report table for the terminal; cells are text, never markup."""
    rich = RichTable(title=table.title, title_justify="left", header_style="bold")
    for number, name in enumerate(table.head):
        rich.add_column(
            name,
            justify="right" if number in table.numeric else "left",
            overflow="fold",
        )
    for row in table.rows:
        rich.add_row(*(Text(cell) for cell in row))
    return rich


def print_funnel(console: Console, result: Funnel) -> None:
    """The funnel, the answers, what was published and what is missing."""
    for table in (funnel_table(result), answers_table(result), published_table(result)):
        if table.rows:
            console.print(rich_table(table))
    if result.missing:
        console.print(rich_table(missing_table(result)))
    for problem in result.problems:
        console.print(Text(f"counts do not add up: {problem}", style="red"))
