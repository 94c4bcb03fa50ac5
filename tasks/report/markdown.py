"""The funnel as Markdown, for Prefect artifacts.

Invariant: reasons and names may come from hostile text, so cells are escaped: no markup, no links.
"""

from tasks.report.model import Funnel
from tasks.report.tables import (
    Table,
    answers_table,
    funnel_table,
    missing_table,
    published_table,
)

MARKUP = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_{}[]()#!|~"} | {"<": "&lt;", ">": "&gt;"}
)


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return " ".join(text.split()).translate(MARKUP)


def table_markdown(table: Table) -> str:
    """One table with its title."""
    rule = ["---:" if column in table.numeric else "---" for column in range(len(table.head))]
    lines = [list(table.head), rule, *[[escape(cell) for cell in row] for row in table.rows]]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"### {escape(table.title)}\n\n{body}\n"


def funnel_markdown(result: Funnel) -> str:
    """The whole funnel, as `tracemill status` shows it."""
    state = "complete" if result.complete else "not complete"
    parts = [f"Run **{escape(result.run_id)}**: {state}.\n"]
    if result.problems:
        parts.append("**Counts that do not add up**\n")
        parts.append("\n".join(f"- {escape(problem)}" for problem in result.problems) + "\n")
    tables = [funnel_table(result), answers_table(result)]
    if result.published is not None:
        tables.append(published_table(result))
        info = result.published
        parts.append(
            f"Published: {escape(info.name)} {escape(info.version)} in {escape(info.path)}\n"
        )
    if result.missing:
        tables.append(missing_table(result))
    return "\n".join([*parts, *[table_markdown(table) for table in tables]])
