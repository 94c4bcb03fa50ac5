"""The summary of a verified file: rows, mean score and reasons per task type.

Task types and details are text from outside: unknown types are counted as one, and nothing of a
text reaches the terminal but what can be printed.
"""

from collections import Counter
from typing import Any

from tasks.report.tables import Table
from verifiers import Score, task_types

UNKNOWN = "(no known task type)"
_REASONS = 5
"""Reasons kept per task type, the most frequent ones."""
_MAX_DISTINCT = 1000


class Summary:
    """Tallies scores as they come."""

    def __init__(self) -> None:
        self.known = frozenset(task_types())
        self.statuses: dict[str, Counter[str]] = {}
        self.sums: dict[str, float] = {}
        self.reasons: dict[str, Counter[str]] = {}
        self.rows = self.scored = self.full = 0

    def add(self, task_type: object, score: Score) -> None:
        """Count one result."""
        name = task_type if isinstance(task_type, str) and task_type in self.known else UNKNOWN
        self.statuses.setdefault(name, Counter())[score.status] += 1
        self.rows += 1
        if score.score is not None:
            self.scored += 1
            self.full += score.score == 1.0
            self.sums[name] = self.sums.get(name, 0.0) + score.score
            return
        reasons = self.reasons.setdefault(name, Counter())
        reason = f"{score.status}: {_printable(score.detail)[:120]}"
        if reason in reasons or len(reasons) < _MAX_DISTINCT:
            reasons[reason] += 1

    def to_json(self) -> dict[str, Any]:
        """Counts of the file and of each task type; mean_score is null where nothing is scored."""
        return {
            "rows": self.rows,
            "scored": self.scored,
            "unscored": self.rows - self.scored,
            "full_score": self.full,
            "task_types": {name: self._type(name) for name in sorted(self.statuses)},
        }

    def _type(self, name: str) -> dict[str, Any]:
        statuses = self.statuses[name]
        unscored = statuses["unverifiable"] + statuses["verifier_error"]
        scored = statuses.total() - unscored
        return {
            "rows": statuses.total(),
            "scored": scored,
            "mean_score": round(self.sums[name] / scored, 6) if scored else None,
            "statuses": {status: count for status, count in sorted(statuses.items()) if count},
            "unscored_reasons": dict(self.reasons.get(name, Counter()).most_common(_REASONS)),
        }

    def tables(self) -> list[Table]:
        """For the terminal: one line per task type, and why rows have no score."""
        whole = self.to_json()
        lines = tuple(
            (
                name,
                str(part["rows"]),
                str(part["scored"]),
                "-" if part["mean_score"] is None else f"{part['mean_score']:.3f}",
                ", ".join(f"{status} {count}" for status, count in part["statuses"].items()),
            )
            for name, part in whole["task_types"].items()
        )
        title = f"{self.rows} rows, {self.scored} scored, {self.full} with score 1"
        reasons = tuple(
            (name, str(count), reason)
            for name, part in whole["task_types"].items()
            for reason, count in part["unscored_reasons"].items()
        )
        head = ("task type", "rows", "scored", "mean score", "status")
        tables = [Table(title, head, lines, frozenset((1, 2, 3)))]
        if reasons:
            head_of_reasons = ("task type", "rows", "reason")
            tables.append(Table("rows without a score", head_of_reasons, reasons, frozenset((1,))))
        return tables


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
