"""The learning curve: held-out solve rates over policy versions, as an SVG image.

Invariant: the same points give the same bytes, so a report that is written again does not change.
"""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from tasks.train.rounds.estimates import Estimate
from tasks.train.rounds.evaluation import Evaluation

COLOURS = ("#1f6feb", "#d2691e", "#2e8b57", "#8a2be2", "#b22222", "#708090")
WIDTH, HEIGHT = 800, 450
LEFT, RIGHT, TOP, BOTTOM = 60, 785, 40, 400
"""Edges of the plot, in pixels."""
MOST_TICKS = 9
LINE_HEIGHT = 17

Point = tuple[float, float]


def learning_curve(evaluations: Sequence[Evaluation], title: str) -> str:
    """One line per kind at the sampling temperature with its 95 % band, greedy dashed."""
    kinds = sorted({kind for evaluation in evaluations for kind in evaluation.kinds})
    last = max([evaluation.version for evaluation in evaluations], default=0) or 1
    parts = [*_axes(last, title)]
    for number, kind in enumerate(kinds):
        colour = COLOURS[number % len(COLOURS)]
        measured = [(e.version / last, e.kinds[kind]) for e in evaluations if kind in e.kinds]
        parts += _sampled([(x, rates.sampled) for x, rates in measured], colour)
        parts.append(_line([(x, rates.greedy.mean) for x, rates in measured], colour, dashed=True))
    parts += _legend(kinds)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def ticks(last: int) -> list[int]:
    """Round numbers from 0 to at most `last`."""
    step, factors = 1, (2, 2.5, 2)
    for number in range(3 * len(str(last))):
        if last // step < MOST_TICKS:
            break
        step = int(step * factors[number % 3])
    return list(range(0, last + 1, step))


def _place(point: Point) -> tuple[float, float]:
    """Pixels of a point of the unit square."""
    x, y = point
    return LEFT + x * (RIGHT - LEFT), BOTTOM - y * (BOTTOM - TOP)


def _points(points: Sequence[Point]) -> str:
    return " ".join("{:.2f},{:.2f}".format(*_place(point)) for point in points)


def _line(points: Sequence[Point], colour: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="6 3"' if dashed else ""
    return (
        f'<polyline points="{_points(points)}" fill="none" stroke="{colour}" '
        f'stroke-width="1.5"{dashes}/>'
    )


def _sampled(points: Sequence[tuple[float, Estimate]], colour: str) -> Iterator[str]:
    band = [(x, rate.low) for x, rate in points] + [(x, rate.high) for x, rate in points[::-1]]
    yield f'<polygon points="{_points(band)}" fill="{colour}" fill-opacity="0.15"/>'
    means = [(x, rate.mean) for x, rate in points]
    yield _line(means, colour)
    for x, y in map(_place, means):
        yield f'<circle cx="{x:.2f}" cy="{y:.2f}" r="2.5" fill="{colour}"/>'


def _axes(last: int, title: str) -> Iterator[str]:
    for tenth in range(0, 11, 2):
        x, y = _place((0.0, tenth / 10))
        yield f'<path d="M{LEFT} {y:.2f}H{RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{x - 6:.2f}" y="{y + 4:.2f}" text-anchor="end">{tenth / 10:.1f}</text>'
    for version in ticks(last):
        x, y = _place((version / last, 0.0))
        yield f'<path d="M{x:.2f} {TOP}V{BOTTOM}" stroke="#ddd"/>'
        yield f'<text x="{x:.2f}" y="{y + 16:.2f}" text-anchor="middle">{version}</text>'
    size = f'width="{RIGHT - LEFT}" height="{BOTTOM - TOP}"'
    yield f'<rect x="{LEFT}" y="{TOP}" {size} fill="none" stroke="black"/>'
    centre, middle = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    yield f'<text x="{centre}" y="24" text-anchor="middle" font-size="15">{escape(title)}</text>'
    yield (
        f'<text x="{centre}" y="{HEIGHT - 12}" text-anchor="middle">'
        "policy version (rollout steps trained)</text>"
    )
    yield (
        f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">'
        "held-out solve rate</text>"
    )


def _legend(kinds: Sequence[str]) -> Iterator[str]:
    names = [name for kind in kinds for name in (kind, f"{kind}, greedy")]
    if not names:
        return
    width = 50 + 7 * max(map(len, names))
    left, top = RIGHT - width - 8, BOTTOM - LINE_HEIGHT * len(names) - 14
    yield (
        f'<rect x="{left}" y="{top}" width="{width}" height="{LINE_HEIGHT * len(names) + 8}" '
        'fill="white" fill-opacity="0.8" stroke="#ccc"/>'
    )
    for number, name in enumerate(names):
        colour, y = COLOURS[number // 2 % len(COLOURS)], top + LINE_HEIGHT * (number + 1)
        dashes = ' stroke-dasharray="6 3"' if number % 2 else ""
        yield (
            f'<path d="M{left + 8} {y - 4}h26" stroke="{colour}" stroke-width="1.5"{dashes}/>'
            f'<text x="{left + 42}" y="{y}">{escape(name)}</text>'
        )
