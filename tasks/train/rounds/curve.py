"""The learning curve: held-out solve rates over policy versions, as an SVG image.

Invariant: the same points give the same bytes, so a report that is written again does not change.
"""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from tasks.train.rounds.evaluation import Evaluation

COLOURS = ("#1f6feb", "#d2691e", "#2e8b57", "#8a2be2", "#b22222", "#708090")


def learning_curve(evaluations: Sequence[Evaluation], title: str) -> str:
    """One line per kind at the sampling temperature with its 95 % band, greedy dashed."""
    with matplotlib.rc_context({"svg.hashsalt": "tracemill", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes: Any = figure.subplots()
        kinds = sorted({kind for evaluation in evaluations for kind in evaluation.kinds})
        for number, kind in enumerate(kinds):
            colour = COLOURS[number % len(COLOURS)]
            points = [(e.version, e.kinds[kind]) for e in evaluations if kind in e.kinds]
            steps = [version for version, _ in points]
            sampled = [rates.sampled for _, rates in points]
            axes.plot(steps, [rate.mean for rate in sampled], color=colour, label=kind, marker=".")
            low, high = [rate.low for rate in sampled], [rate.high for rate in sampled]
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            greedy = [rates.greedy.mean for _, rates in points]
            axes.plot(steps, greedy, color=colour, linestyle="--", label=f"{kind}, greedy")
        axes.set_ylim(0, 1)
        axes.set_xlabel("policy version (rollout steps trained)")
        axes.set_ylabel("held-out solve rate")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        if kinds:
            axes.legend(loc="lower right", fontsize="small")
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
