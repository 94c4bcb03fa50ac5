"""Reconciliation: at every boundary, rows in = rows out + quarantined.

Invariant: the counts travel in the manifest of the commit that they describe, so a boundary can
be checked again later without the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.storage.errors import CountMismatch


@dataclass(frozen=True)
class StageCount:
    """Where the rows of one stage (or of one shard of it) went."""

    stage: str
    rows_in: int
    rows_out: int
    quarantined: int
    reasons: dict[str, int] = field(default_factory=dict)
    """Reason -> quarantined rows."""

    def info(self) -> dict[str, Any]:
        """The entry `counts` of `Manifest.info`."""
        return {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "quarantined": self.quarantined,
            "reasons": dict(sorted(self.reasons.items())),
        }

    def __add__(self, other: StageCount) -> StageCount:
        if other.stage != self.stage:
            raise CountMismatch(
                f"counts of stage {other.stage!r} cannot be added to those of {self.stage!r}"
            )
        reasons = dict(self.reasons)
        for reason, number in other.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + number
        return StageCount(
            self.stage,
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.quarantined + other.quarantined,
            reasons,
        )


def from_info(stage: str, info: Mapping[str, Any]) -> StageCount:
    """The counts in a manifest's `info`."""
    try:
        counts = info["counts"]
        return StageCount(
            stage,
            int(counts["rows_in"]),
            int(counts["rows_out"]),
            int(counts["quarantined"]),
            {str(reason): int(number) for reason, number in counts["reasons"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CountMismatch(
            f"stage {stage!r}: the manifest carries no usable counts ({error!r}); needed in "
            "info['counts'] are rows_in, rows_out, quarantined and reasons. Commit with "
            "StageCount.info()"
        ) from error


def check(count: StageCount) -> None:
    """Raise `CountMismatch` unless every row that came in is accounted for."""
    numbers = (count.rows_in, count.rows_out, count.quarantined, *count.reasons.values())
    if any(number < 0 for number in numbers):
        raise CountMismatch(f"stage {count.stage!r}: negative counts in {count}; count again")
    lost = count.rows_in - count.rows_out - count.quarantined
    if lost:
        raise CountMismatch(
            f"stage {count.stage!r}: {count.rows_in} rows came in, {count.rows_out} went out and "
            f"{count.quarantined} were quarantined, so {lost} are "
            "unaccounted for. Quarantine with a reason every row that is not written"
        )
    if sum(count.reasons.values()) != count.quarantined:
        raise CountMismatch(
            f"stage {count.stage!r}: {count.quarantined} rows were quarantined but the reasons "
            f"{count.reasons} add up to {sum(count.reasons.values())}; give one reason per row"
        )
