"""What the refused traces of a node say of the node.

A calibrated limit refuses an honest trace too, at a stated rate or less, so that one refusal proves
nothing and a node that works long enough has some. `Record` counts, and weighs two explanations
against each other: that refusals come at most at the stated rate, and that they come at a higher
one, which may be any of `_HIGHER`, equally likely. The weight is their likelihood ratio. Each of
its terms shrinks on average with every trace of a node whose rate is the stated one or below, so
that by Ville's inequality such a node ever reaches 1 / chance with probability `chance` at most,
however long and however often one looks. A fixed count or a binomial test would be wrong sooner or
later, since it is looked at after every upload.

Source: Ramdas et al., "Game-Theoretic Statistics and Safe Anytime-Valid Inference",
arXiv 2210.01948, sections 3 and 4.
"""

from dataclasses import dataclass
from math import exp, log, log1p

CHANCE = 1e-5
"""Of an honest node, to be taken for a liar in all the time that it works."""

_STEPS = 16
_HIGHER = tuple((step + 0.5) / _STEPS for step in range(_STEPS))
"""Rates of a liar, between the stated one and 1 on the scale of logarithms."""


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
        terms = []
        for share in _HIGHER:
            higher = self.rate ** (1.0 - share)
            gained = self.beyond * log(higher / self.rate)
            terms.append(gained + passed * (log1p(-higher) - log1p(-self.rate)))
        largest = max(terms)
        return largest + log(sum(exp(term - largest) for term in terms) / _STEPS)

    def proves_lies(self, chance: float = CHANCE) -> bool:
        """Whether no honest node has such a record, but with this chance."""
        return self.weight() >= -log(chance)
