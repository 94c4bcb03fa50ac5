"""Where the GPU-hours went, and how fast lost work ran again."""

import statistics
from collections import defaultdict
from dataclasses import dataclass, field

WASTE = ("detection", "reload", "lost", "merge", "stuck", "rejected", "duplicate")
"""detection: waiting for a member whose loss the pool has not acted on; reload: loading, or waiting
for members that load; lost: work on shards that were broken off; merge: the same, because the pool
took the nodes for another group; stuck: in a group that cannot work and that nobody dissolves;
rejected: results that were refused; duplicate: second results of one shard."""


@dataclass
class Account:
    """GPU-seconds by cause."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    recoveries: list[float] = field(default_factory=list)
    unrecovered: int = 0
    wrong_deaths: int = 0
    deaths: int = 0
    false_bans: int = 0
    """Honest machines that are ejected or banned at the end."""
    shards: int = 0

    def add(self, cause: str, gpu_seconds: float) -> None:
        """Book GPU-seconds: available, useful, idle, or a cause of waste."""
        self.seconds[cause] += gpu_seconds

    def summary(self) -> dict[str, float | int]:
        """Hours by cause, shares, and recovery times in seconds."""
        hours = {f"{key}_gpu_hours": value / 3600 for key, value in sorted(self.seconds.items())}
        wasted = sum(self.seconds[cause] for cause in WASTE) / 3600
        recovered = sorted(self.recoveries)
        return hours | {
            "wasted_gpu_hours": wasted,
            "useful_share": self.seconds["useful"] / max(self.seconds["available"], 1.0),
            "recovery_mean_s": statistics.fmean(recovered) if recovered else 0.0,
            "recovery_median_s": statistics.median(recovered) if recovered else 0.0,
            "recovery_p95_s": recovered[int(0.95 * len(recovered))] if recovered else 0.0,
            "recoveries": len(recovered),
            "unrecovered": self.unrecovered,
            "dead": self.deaths,
            "dead_wrongly": self.wrong_deaths,
            "banned_wrongly": self.false_bans,
            "shards": self.shards,
        }
