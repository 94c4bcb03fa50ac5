"""What the refused traces of a node say of the node.

A calibrated limit refuses an honest trace too, at a stated rate, so that one refusal proves nothing
and a node that works long enough has some. `Record` counts, and weighs two explanations against
each other: that refusals come at the stated rate or less, and that they come at some unknown higher
one. The weight is the likelihood ratio with the unknown rate spread by Beta(1/2, 1/2), a
non-negative martingale where the node is honest: by Ville's inequality it ever reaches 1 / chance
with probability `chance` at most, however long and however often one looks. A fixed count or a
binomial test would be wrong sooner or later, since it is looked at after every upload.

Source: Ramdas et al., "Game-Theoretic Statistics and Safe Anytime-Valid Inference",
arXiv 2210.01948, sections 3 and 4.
"""

from dataclasses import dataclass
from math import lgamma, log, log1p

CHANCE = 1e-5
"""Of an honest node, to be taken for a liar in all the time that it works."""


@dataclass(frozen=True, slots=True)
class Record:
    """The traces of one node that were held against limits."""

    judged: int = 0
    """Traces that were accepted, or refused by limits that refuse honest ones too."""
    beyond: int = 0
    """Those that were refused."""
    rate: float = 0.0
    """Share of honest traces that the limits refuse; the largest where they differ."""

    def __add__(self, other: "Record") -> "Record":
        return Record(
            self.judged + other.judged,
            self.beyond + other.beyond,
            max(self.rate, other.rate),
        )

    def weight(self) -> float:
        """Natural logarithm of how many times likelier a liar makes this record."""
        if not self.beyond:
            return 0.0
        passed = self.judged - self.beyond
        mixed = lgamma(self.beyond + 0.5) + lgamma(passed + 0.5) - lgamma(self.judged + 1.0)
        return mixed - 2 * lgamma(0.5) - self.beyond * log(self.rate) - passed * log1p(-self.rate)

    def proves_lies(self, chance: float = CHANCE) -> bool:
        """Whether no honest node has such a record, but with this chance."""
        return self.weight() >= -log(chance)
