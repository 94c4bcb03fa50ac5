"""Results of a run outside its tables: funnel.json, the report, Prefect artifacts of the same."""

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.runs import Run
from tasks.report.funnel import funnel, write_funnel
from tasks.report.html import write_report
from tasks.report.markdown import funnel_markdown
from tasks.report.model import Funnel
from tasks.report.tables import funnel_table


def write_results(run: Run) -> Funnel:
    """funnel.json and report/index.html of the run as it is now."""
    result = funnel(run.store, run.layout)
    write_funnel(run.store, run.layout, result)
    write_report(run.store, run.layout, result)
    return result


def publish_artifacts(run: Run, result: Funnel) -> None:
    """The funnel as a table; funnel, answers and published rows as a page."""
    table = funnel_table(result)
    create_table_artifact(
        key="funnel",
        table=[dict(zip(table.head, row, strict=True)) for row in table.rows],
        description=f"Where every row of {run.run_id} went",
    )
    create_markdown_artifact(
        key="run-report",
        markdown=f"{funnel_markdown(result)}\n\nReport: `{run.store.uri(run.layout.report)}`\n",
        description=f"Funnel, answers and published rows of {run.run_id}",
    )
