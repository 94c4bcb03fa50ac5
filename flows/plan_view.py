"""The tables of `tracemill plan`."""

from rich.table import Table

from flows.estimate import Estimate


def plan_tables(result: Estimate) -> list[Table]:
    """Tasks by type, and the work of each model."""
    tasks = Table(title=f"{result.tasks} tasks", title_justify="left")
    tasks.add_column("task type")
    tasks.add_column("tasks", justify="right")
    for name, count in result.tasks_by_type.items():
        tasks.add_row(name, str(count))
    for reason, count in result.quarantined.items():
        tasks.add_row(f"quarantined: {reason}", str(count))
    work = Table(title="Work (teacher and output tokens: at most)", title_justify="left")
    work.add_column("phase")
    work.add_column("model")
    for name in ("tasks", "traces", "shards", "prompt tokens", "output tokens", "disk"):
        work.add_column(name, justify="right")
    for plan in result.models:
        work.add_row(
            plan.phase,
            plan.model,
            f"{plan.tasks:,}",
            f"{plan.traces:,}",
            f"{plan.shards:,}",
            f"{plan.prompt_tokens:,}",
            f"{plan.output_tokens_at_most:,}",
            f"{plan.disk_bytes_at_most / 1e6:.1f} MB",
        )
    return [tasks, work]
