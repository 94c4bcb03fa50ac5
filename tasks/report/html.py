"""The report as one HTML file that needs nothing else: no network, no script, no other file.

Invariants: every value is escaped by the template engine, nothing is marked as safe but our own
style sheet; the page's policy forbids scripts, frames and every load, and allows that one style
sheet by its hash. Characters that could reorder or hide text are shown by their code.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from infra.storage import Store
from infra.storage.layout import RunLayout
from tasks.report.details import Details, read_details
from tasks.report.model import Funnel, SolveRow, StageRow
from tasks.report.tables import published_table, reasons_text

TEMPLATES = Path(__file__).parent / "templates"
UNITS = {"collect": "tasks", "annotate": "task × model"}
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar; x and width in percent of the whole."""

    kind: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One stage as a bar."""

    row: StageRow
    unit: str
    segments: tuple[Segment, ...]


def visible(text: object) -> str:
    """Text without characters that reorder, hide or break it."""
    return HIDDEN.sub(lambda match: f"[U+{ord(match.group()):04X}]", str(text))


def segments(parts: list[tuple[str, int]], whole: int) -> tuple[Segment, ...]:
    """Consecutive parts of a bar of `whole` rows; empty parts are left out."""
    found = []
    start = 0
    for kind, count in parts:
        if count > 0 and whole > 0:
            x, width = 100 * start / whole, 100 * count / whole
            found.append(Segment(kind, count, round(x, 3), round(width, 3)))
            start += count
    return tuple(found)


def stage_bars(result: Funnel) -> tuple[Bar, ...]:
    """A bar per stage; those that count traces share one scale, so that they form a funnel."""
    planned = sum(row.planned for row in result.solve)
    bars = []
    for row in result.totals():
        unit = UNITS.get(row.stage, "traces")
        parts = [
            ("out", row.rows_out),
            ("unscored", row.unscored),
            ("rejected", row.rejected),
            ("quarantined", row.quarantined),
        ]
        if row.stage == "generate":
            parts.append(("pending", planned - row.rows_in))
        whole = max(planned, row.rows_in) if unit == "traces" else row.rows_in
        bars.append(Bar(row, unit, segments(parts, whole)))
    return tuple(bars)


def solve_matrix(result: Funnel) -> list[tuple[str, list[SolveRow | None]]]:
    """Per task type one cell per model, in the order of the funnel's models."""
    cells = {(row.task_type, row.model): row for row in result.solve}
    types = sorted({row.task_type for row in result.solve})
    return [(kind, [cells.get((kind, model)) for model in result.models]) for kind in types]


def solve_segments(row: SolveRow) -> tuple[Segment, ...]:
    """The bar of one cell of the solve table."""
    parts = [("right", row.right), ("wrong", row.wrong), ("unscored", row.unscored)]
    lost = row.planned - row.right - row.wrong - row.unscored
    return segments([*parts, ("pending", lost)], row.planned)


def render_html(result: Funnel, details: Details) -> str:
    """The page of a run."""
    return render_page(
        "report.html.j2",
        result=result,
        details=details,
        bars=stage_bars(result),
        matrix=solve_matrix(result),
        solve_segments=solve_segments,
        published_rows=published_table(result).rows,
    )


def render_page(template: str, **values: object) -> str:
    """A page from a template of this package, with the style sheet and its hash."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["reasons"] = reasons_text
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=Markup(style),  # our own file, never text of a run
        style_hash=f"sha256-{digest}",
        **values,
    )


def write_report(store: Store, layout: RunLayout, result: Funnel) -> str:
    """Write report/index.html and return its path."""
    page = render_html(result, read_details(store, layout))
    store.write_bytes(layout.report, page.encode(), overwrite=True)
    return layout.report


def _finalize(value: object) -> object:
    # only texts are made visible: Markup is our own and stays as it is
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
