"""Which tokens stay candidates: temperature, then min-p, top-k and top-p, as vLLM orders them.

Every filter keeps a top segment of the logits and at least the largest one. Equal logits are ordered
by token id, so a filter cuts through ties the same way everywhere. Probability masses are summed as
64-bit integers (units of 2**-40 of the largest token's), which makes the sums exact: they do not
depend on the device, the order or the other rows.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from toploc.errors import InvalidLogits, InvalidSettings
from toploc.floats import exp32
from toploc.select import ordered_keys, top_k

MASS_UNIT = 2.0**40

GREEDY_BELOW = 1e-5
"""Temperatures below this mean greedy, as in vLLM."""

EDGE_LOGIT = 1e-3
EDGE_MASS = 1e-4
"""A verifier's cut may fall one token beside the prover's although both are honest. A claimed token
within these distances (unscaled logits; share of mass for top-p) of the cut counts as inside."""

_FIRST_WIDTH = 128


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """How tokens are drawn; temperature 0 is greedy, top_k 0, top_p 1 and min_p 0 are off."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        for name, fine, allowed in (
            ("temperature", 0.0 <= self.temperature < math.inf, "0 or a positive number"),
            ("top_p", 0.0 < self.top_p <= 1.0, "more than 0 and at most 1 (1 = off)"),
            ("top_k", self.top_k >= 0, "0 (off) or a positive number"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "0 (off) to 1"),
        ):
            if not fine:
                raise InvalidSettings(
                    f"sampling rule: {name} is {getattr(self, name)!r}, allowed is {allowed}; "
                    "correct the sampling parameters"
                )

    @property
    def greedy(self) -> bool:
        """Whether the largest logit is taken without noise."""
        return self.temperature < GREEDY_BELOW

    @property
    def inverse_temperature(self) -> float:
        """Factor of the logits before anything is drawn; 1 for greedy."""
        return 1.0 if self.greedy else 1.0 / self.temperature


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is left of each row's vocabulary, at places of its own order, [n, width] each."""

    ids: Tensor | None
    """Token id of each place; None where places are the ids."""
    logits: Tensor
    weights: Tensor
    """float32 exp(scaled logit - largest scaled logit); 0 for what was dropped."""
    kept: Tensor
    largest: Tensor
    """Largest logit [n, 1]."""
    total: Tensor
    """Mass of the kept tokens [n], int64."""
    edge: Tensor
    """A claimed token counts as kept from this logit on [n]."""


def candidates(logits: Tensor, rule: SamplingRule) -> Candidates:
    """Apply the rule's filters to logits [n, V], float32."""
    if logits.dim() != 2 or logits.dtype != torch.float32 or logits.shape[1] == 0:
        raise InvalidLogits(
            f"logits are {logits.dtype} {list(logits.shape)}; give float32 [rows, vocabulary]"
        )
    largest = logits.amax(1, keepdim=True)
    if not torch.isfinite(largest).all():
        row = int(torch.nonzero(~torch.isfinite(largest[:, 0]))[0])
        raise InvalidLogits(
            f"the largest logit of row {row} is {float(largest[row])}; finite numbers (and -inf for "
            "forbidden tokens) are needed: look for overflow in the model"
        )
    vocabulary = logits.shape[1]
    if rule.greedy:
        return _weighed(None, logits, largest, rule, logits > -math.inf)
    if 0 < rule.top_k < vocabulary:
        ids = top_k(ordered_keys(logits), rule.top_k)
        values = logits.gather(1, ids)
        found = _weighed(ids, values, largest, rule, _min_p(values, largest, rule))
        return _top_p(found, found.total, rule) if rule.top_p < 1.0 else found
    everything = _weighed(None, logits, largest, rule, _min_p(logits, largest, rule))
    if rule.top_p == 1.0:
        return everything
    return _top_p_of_vocabulary(everything, rule)


def masses(weights: Tensor) -> Tensor:
    """Weights as integers that add up exactly."""
    return (weights * MASS_UNIT).to(torch.int64)


def _min_p(logits: Tensor, largest: Tensor, rule: SamplingRule) -> Tensor:
    """Tokens with at least min_p times the largest probability, -inf never."""
    if rule.min_p == 0.0:
        return logits > -math.inf
    return logits >= largest + rule.temperature * math.log(rule.min_p)


def _weighed(
    ids: Tensor | None, logits: Tensor, largest: Tensor, rule: SamplingRule, kept: Tensor
) -> Candidates:
    weights = exp32((logits - largest) * rule.inverse_temperature)
    if rule.min_p > 0.0 or ids is not None:
        weights = weights * kept
        lowest = torch.where(kept, logits, math.inf).amin(1) - EDGE_LOGIT
    else:
        lowest = torch.full_like(largest[:, 0], -math.inf)
    total = masses(weights).sum(1)
    return Candidates(ids, logits, weights, kept, largest, total, lowest)


def _top_p_of_vocabulary(everything: Candidates, rule: SamplingRule) -> Candidates:
    """Top-p over the whole vocabulary: look at ever more of the largest until the mass is there."""
    keys = ordered_keys(everything.logits)
    vocabulary = keys.shape[1]
    width = min(_FIRST_WIDTH, vocabulary)
    while True:
        ids = top_k(keys, width)
        found = Candidates(
            ids,
            everything.logits.gather(1, ids),
            everything.weights.gather(1, ids),
            everything.kept.gather(1, ids),
            everything.largest,
            everything.total,
            everything.edge,
        )
        seen = masses(found.weights).sum(1).to(torch.float64)
        wanted = everything.total.to(torch.float64) * min(rule.top_p + EDGE_MASS, 1.0)
        if width == vocabulary or bool((seen >= wanted).all()):
            return _top_p(found, everything.total, rule)
        width = min(width * 8, vocabulary)


def _top_p(found: Candidates, total: Tensor, rule: SamplingRule) -> Candidates:
    """Drop tokens, largest first in `found`, before which top_p of the mass `total` has been seen."""
    mass = masses(found.weights)
    before = (torch.cumsum(mass, 1) - mass).to(torch.float64)
    share = total.to(torch.float64)[:, None]
    kept = found.kept & (before < share * rule.top_p)
    near = found.kept & (before < share * (rule.top_p + EDGE_MASS))
    weights = found.weights * kept
    edge = torch.where(near, found.logits, math.inf).amin(1) - EDGE_LOGIT
    return Candidates(
        found.ids,
        found.logits,
        weights,
        kept,
        found.largest,
        masses(weights).sum(1),
        edge,
    )
