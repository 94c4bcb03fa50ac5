"""The funnel as rows of text: one source for the terminal, the Prefect artifacts and the page."""

from dataclasses import dataclass

from tasks.report.model import Funnel, StageRow

TOP_REASONS = 6


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text; columns from `numeric` on are numbers and go to the right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int]


def reasons_text(reasons: dict[str, int], top: int = TOP_REASONS) -> str:
    """The most frequent reasons first; the rest as a count, so that nothing seems complete."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{reason} {count}" for reason, count in ordered[:top]]
    if len(ordered) > top:
        rest = ordered[top:]
        parts.append(f"{len(rest)} more reasons {sum(count for _, count in rest)}")
    return ", ".join(parts)


def funnel_table(result: Funnel) -> Table:
    """Stage, model, shards, in, out, lost by kind, reasons."""
    head = (
        "stage", "model", "shards", "in", "out", "rejected", "unscored", "quarantined", "reasons",
    )  # fmt: skip
    return Table(
        title=f"Funnel of {result.run_id}",
        head=head,
        rows=tuple(_stage(row) for row in result.stages),
        numeric=frozenset(range(2, 8)),
    )


def _stage(row: StageRow) -> tuple[str, ...]:
    return (
        row.stage,
        row.model or "-",
        f"{row.shards_done}/{row.shards_planned}",
        str(row.rows_in),
        str(row.rows_out),
        str(row.rejected),
        str(row.unscored),
        str(row.quarantined),
        reasons_text(row.reasons),
    )


def answers_table(result: Funnel) -> Table:
    """Task type, model, planned, accepted, right, wrong, unscored, rate."""
    head = ("task type", "model", "planned", "accepted", "right", "wrong", "unscored", "solved")
    rows = tuple(
        (
            row.task_type,
            row.model,
            str(row.planned),
            str(row.accepted),
            str(row.right),
            str(row.wrong),
            str(row.unscored),
            "-" if row.solve_rate is None else f"{row.solve_rate:.0%}",
        )
        for row in result.solve
    )
    return Table("Answers", head, rows, frozenset(range(2, 8)))


def published_table(result: Funnel) -> Table:
    """Config, rows, and what it leaves out."""
    info = result.published
    rows = (
        ()
        if info is None
        else tuple(
            (config, str(count), reasons_text(info.left_out.get(config, {})))
            for config, count in info.rows.items()
        )
    )
    return Table("Published", ("config", "rows", "left out"), rows, frozenset({1}))


def missing_table(result: Funnel, top: int = 50) -> Table:
    """Shards that are planned and not committed."""
    rows = [tuple(path.rsplit("/", 1)) for path in result.missing[:top]]
    if len(result.missing) > top:
        rows.append(("...", f"{len(result.missing) - top} more"))
    return Table("Missing shards", ("stage and model", "shard"), tuple(rows), frozenset())
