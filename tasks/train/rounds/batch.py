"""The batch of one rollout step: which jobs are given out, and when it is full. Pure.

Invariants: a batch takes whole jobs, the shortest run of jobs 0, 1, 2, ... that holds enough groups
with a spread of rewards. So it does not depend on who was fast or how often anybody died, and slow
jobs, which are those of long answers, are not passed over for fast ones. With staleness later steps
are generated while a slow job is waited for; jobs beyond the run are not used. Groups
without a spread teach nothing and do not count (DAPO's dynamic sampling).
"""

import math
from dataclasses import dataclass, field

from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.errors import StepStuck

FIRST_SHARE = 1.0
"""Share of groups with a spread of rewards that is expected where nothing is known: a job more goes
out when it turns out to be needed, and none in vain."""
LEAST_SHARE = 0.05


@dataclass
class StepBatch:
    """Jobs of one step, by number."""

    step: int
    config: RoundsConfig
    expected_share: float = FIRST_SHARE
    """Groups of a job that are expected to have a spread."""
    issued: int = 0
    """Jobs of the step so far: numbers 0 to issued - 1."""
    dealt: set[int] = field(default_factory=set)
    """Those that were given out by this process."""
    useful: dict[int, int] = field(default_factory=dict)
    """Accepted jobs: number -> groups with a spread."""

    def to_issue(self) -> list[int]:
        """Numbers of the jobs that are to be given out now; they count as given out."""
        if self.selected() is not None:
            return []
        self.issued = max(self.issued, self._wanted())
        numbers = [n for n in range(self.issued) if n not in self.dealt and n not in self.useful]
        self.dealt.update(numbers)
        return numbers

    def _wanted(self) -> int:
        """Jobs that the step needs, as far as can be seen now."""
        waiting = self.issued - len(self.useful)
        if waiting == 0 and self.issued == self.config.max_jobs_per_step:
            found = sum(self.useful.values())
            raise StepStuck(self.step, self.issued, found, self.config.groups_per_step)
        missing = self.config.groups_per_step - sum(self.useful.values())
        per_job = self.config.groups_per_job * max(LEAST_SHARE, self.share())
        # Of a batch that is not full at least one job is always under way.
        more = max(math.ceil(missing / per_job) - waiting, 0 if waiting else 1)
        return min(self.issued + more, self.config.max_jobs_per_step)

    def share(self) -> float:
        """Share of groups with a spread, as seen so far or as expected."""
        if not self.useful:
            return self.expected_share
        return sum(self.useful.values()) / (len(self.useful) * self.config.groups_per_job)

    def accept(self, number: int, useful: int) -> None:
        """An accepted job and its groups with a spread; a job that came before counts once."""
        self.useful.setdefault(number, useful)
        self.issued = max(self.issued, number + 1)

    def forget(self, number: int) -> None:
        """An accepted job was taken back, since its node was caught at a lie; it goes out again."""
        del self.useful[number]
        self.dealt.discard(number)

    def selected(self) -> list[int] | None:
        """Numbers of the jobs that the batch is made of; None while they are not enough."""
        total = 0
        taken: list[int] = []
        for number in sorted(self.useful):
            if number != len(taken):
                return None
            taken.append(number)
            total += self.useful[number]
            if total >= self.config.groups_per_step:
                return taken
        return None
