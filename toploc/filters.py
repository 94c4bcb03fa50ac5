"""Which tokens stay candidates: temperature, then min-p, top-k and top-p, as vLLM orders them.

Every filter keeps a top segment of the logits and at least the largest one. Equal logits are
ordered by token id, so a filter cuts through ties the same way everywhere. Probability masses are
summed as 64-bit integers (units of 2**-40 of the largest token's), which makes the sums exact:
they do not depend on the device, the order or the other rows.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from toploc.errors import InvalidLogits, InvalidSettings
from toploc.floats import exp32
from toploc.select import leading

MASS_UNIT = 2.0**40

GREEDY_BELOW = 1e-5
"""Temperatures below this mean greedy, as in vLLM."""

HOTTEST = 1e6
"""Largest temperature: nothing is left of the logits there, and far above 1/T is 0 in float32."""

EDGE_LOGIT = 1e-3
EDGE_MASS = 1e-4
"""A verifier's cut may fall one token beside the prover's although both are honest. A claimed token
within these distances (unscaled logits; share of mass for top-p) of the cut counts as inside."""

NEIGHBOURS = 16
"""Tokens with nearly equal logits that may change places at top-p's cut."""

_FIRST_WIDTH = 128
_SECOND_WIDTH = 1024
"""How many of the largest logits top-p looks at, before it sorts the vocabulary."""

_BLOCK_VALUES = 1 << 16


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """How tokens are drawn; temperature 0 is greedy, top_k 0, top_p 1 and min_p 0 are off."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        for name, fine, allowed in (
            ("temperature", 0.0 <= self.temperature <= HOTTEST, f"0 to {HOTTEST:g}"),
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
    largest: Tensor
    """Largest logit [n, 1]."""
    total: Tensor
    """Mass of the kept tokens [n], int64."""
    edge: Tensor
    """A claimed token counts as kept from this logit on [n]."""
    before: Tensor | None = None
    """Mass above each place [n, width], int64, where top-p cuts."""
    whole: Tensor | None = None
    """Mass that top-p is a share of [n], int64."""

    def of_rows(self, rows: Tensor) -> "Candidates":
        """The same of some rows [r] alone, no wider than what they keep and what is next to it."""
        weights, width = self.weights[rows], self.weights.shape[1]
        if self.ids is not None:
            width = min(width, int((weights > 0.0).sum(1).max()) + NEIGHBOURS)
        return Candidates(
            None if self.ids is None else self.ids[rows, :width],
            self.logits[rows, :width],
            weights[:, :width],
            self.largest[rows],
            self.total[rows],
            self.edge[rows],
            None if self.before is None else self.before[rows, :width],
            None if self.whole is None else self.whole[rows],
        )


def row_blocks(logits: Tensor) -> list[slice]:
    """Slices of rows that fit a processor's cache; on a GPU all rows at once."""
    n, vocabulary = logits.shape
    step = n if logits.is_cuda else _BLOCK_VALUES // vocabulary
    return [slice(i, i + max(step, 1)) for i in range(0, n, max(step, 1))]


def candidates(logits: Tensor, rule: SamplingRule) -> list[tuple[Tensor, Candidates]]:
    """Apply the rule's filters to logits [n, V], float32, n > 0.

    Returns numbers of rows and what is left of these rows: a flat row keeps so many tokens that it
    is looked at apart, lest peaked rows pay for it. Every row is in one of the parts.
    """
    largest = logits.amax(1, keepdim=True)
    if not torch.isfinite(largest).all():
        row = int(torch.nonzero(~torch.isfinite(largest[:, 0]))[0])
        raise InvalidLogits(
            f"the largest logit of row {row} is {float(largest[row])}; finite numbers (and -inf "
            "for forbidden tokens) are needed: look for overflow in the model"
        )
    vocabulary = logits.shape[1]
    rows = torch.arange(len(logits), device=logits.device)
    top_k = min(rule.top_k or vocabulary, vocabulary)
    if top_k < vocabulary and not rule.greedy:
        ids, counts = leading(logits, top_k)
        found, _ = _cut(logits, largest, ids[:, :top_k], counts.clamp(max=top_k), None, rule)
        return [(rows, found)]
    least = _least_kept(logits, largest, rule)
    weights = torch.empty_like(logits)
    total = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    for block in row_blocks(logits):
        weights[block] = _weights(logits[block], largest[block], least[block], rule)
        total[block] = masses(weights[block]).sum(1)
    if rule.top_p == 1.0 or rule.greedy:
        edge = least[:, 0] - EDGE_LOGIT
        return [(rows, Candidates(None, logits, weights, largest, total, edge))]
    parts = []
    for width in (_FIRST_WIDTH, _SECOND_WIDTH, vocabulary):
        ids, counts = leading(logits, min(width, vocabulary))
        found, seen = _cut(logits, largest, ids, counts, total, rule)
        whole = (seen >= total * (rule.top_p + EDGE_MASS)) | (width >= vocabulary)
        if bool(whole.all()):
            parts.append((rows, found))
            break
        if bool(whole.any()):
            parts.append((rows[whole], found.of_rows(torch.nonzero(whole)[:, 0])))
        rows, logits, largest, total = (one[~whole] for one in (rows, logits, largest, total))
    return parts


def distance_outside(logits: Tensor, ids: Tensor, rule: SamplingRule) -> Tensor:
    """How far tokens [n] are from being kept [n], float32, in unscaled logits; 0 for kept ones.

    For min-p and top-k what the token's logit lacks; for top-p by how much the logits of all tokens
    from it downwards would have to rise, or it above its next neighbours, whichever of the two is
    less together. Some passes over the vocabulary: ask for few rows.
    """
    own = logits.gather(1, ids[:, None])
    if rule.greedy:
        return torch.zeros_like(own[:, 0])
    least = _least_kept(logits, logits.amax(1, keepdim=True), rule)
    if 0 < rule.top_k < logits.shape[1]:
        least = torch.maximum(least, logits.topk(rule.top_k, 1).values[:, -1:])
    lacking = (least - own).clamp(min=0.0)
    if rule.top_p < 1.0:
        places = torch.arange(logits.shape[1], device=logits.device)[None, :]
        above = (logits > own) | ((logits == own) & (places < ids[:, None]))
        scaled = (logits - logits.amax(1, keepdim=True)).to(torch.float64)
        weights = torch.exp(scaled * rule.inverse_temperature)
        weights = weights * ((logits >= least) | (places == ids[:, None]))
        before = (weights * above).sum(1, keepdim=True)
        near = torch.where(above, logits, math.inf).topk(
            min(NEIGHBOURS, logits.shape[1]), 1, largest=False
        )
        passed = weights.gather(1, near.indices) * torch.isfinite(near.values)
        before = torch.cat([before, before - passed.cumsum(1)], 1).clamp(min=0.0)
        rise = -_odds(weights.sum(1, keepdim=True), before, rule)
        climb = torch.cat([torch.zeros_like(own), near.values - own], 1)
        least_rise = torch.maximum(rise, climb).amin(1, keepdim=True)
        lacking = torch.maximum(lacking, least_rise.to(lacking.dtype))
    return lacking[:, 0].clamp(min=0.0)


def distance_inside(found: Candidates, logits: Tensor, rule: SamplingRule) -> Tensor:
    """How far candidates are from being dropped, float64 [n, width]; infinite for the largest one.

    The counterpart of `distance_outside`: for min-p and top-k how much higher a token's logit is
    than it has to be; for top-p by how much the logits of all tokens from it downwards would have
    to fall, or it below its next neighbours. `logits` are all of the same rows [n, V].
    """
    own = found.logits.to(torch.float64)
    distance = torch.full_like(own, math.inf)
    if rule.min_p > 0.0:
        distance = own - _least_kept(logits, found.largest, rule)
    if 0 < rule.top_k < logits.shape[1]:
        dropped = logits.topk(rule.top_k + 1, 1).values[:, -1:]
        distance = torch.minimum(distance, own - dropped)
    if found.before is not None and found.whole is not None:
        before, whole = found.before.to(torch.float64), found.whole[:, None]
        width = own.shape[1]
        for passed in range(min(NEIGHBOURS, width - 1)):
            # Behind so many neighbours, all of which but the token itself are then above it.
            kept = width - passed
            mass = before[:, 1:] - before[:, :-1]
            behind = before[:, passed:].clone()
            if passed:
                behind[:, :-1] = before[:, passed + 1 :] - mass[:, : kept - 1]
                behind[:, -1] = math.nan
            fall = torch.maximum(_odds(whole, behind, rule), own[:, :kept] - own[:, passed:])
            fall = torch.where(fall.isnan(), math.inf, fall)
            distance[:, :kept] = torch.minimum(distance[:, :kept], fall)
    return torch.where(own == found.largest, math.inf, distance)


def _odds(whole: Tensor, before: Tensor, rule: SamplingRule) -> Tensor:
    """How far above top-p's the odds of what is not in `before` are, in unscaled logits."""
    share = (whole - before) / before
    limit = math.log((1.0 - rule.top_p) / rule.top_p)
    return rule.temperature * (torch.log(share) - limit)


def masses(weights: Tensor) -> Tensor:
    """Weights as integers that add up exactly."""
    return (weights * MASS_UNIT).to(torch.int64)


def _least_kept(logits: Tensor, largest: Tensor, rule: SamplingRule) -> Tensor:
    """Logit of min_p times the largest probability [n, 1]; -inf without min-p."""
    if rule.min_p == 0.0 or rule.greedy:
        return torch.full_like(largest, -math.inf)
    return largest + rule.temperature * math.log(rule.min_p)


def _weights(logits: Tensor, largest: Tensor, least: Tensor, rule: SamplingRule) -> Tensor:
    weights = exp32((logits - largest) * rule.inverse_temperature)
    return weights.mul_(logits >= least) if rule.min_p > 0.0 else weights


def _cut(
    logits: Tensor,
    largest: Tensor,
    ids: Tensor,
    counts: Tensor,
    total: Tensor | None,
    rule: SamplingRule,
) -> tuple[Candidates, Tensor]:
    """Min-p and top-p among the first `counts` of `ids`, which go from the largest logit downwards.

    `total` is the mass that top_p is a share of; by default that of these tokens. Returns their
    mass too: above that share, what lies beyond them cannot be kept.
    """
    values = logits.gather(1, ids)
    least = _least_kept(logits, largest, rule)
    valid = torch.arange(ids.shape[1], device=ids.device) < counts[:, None]
    valid &= values >= least
    weights = _weights(values, largest, least, rule).mul_(valid)
    mass = masses(weights)
    running = torch.cumsum(mass, 1)
    seen = running[:, -1]
    share = (seen if total is None else total).to(torch.float64)[:, None]
    before = (running - mass).to(torch.float64)
    if rule.top_p < 1.0:
        weights.mul_(before < share * rule.top_p)
        valid &= before < share * (rule.top_p + EDGE_MASS)
    edge = torch.where(valid, values, math.inf).amin(1) - EDGE_LOGIT
    kept = masses(weights).sum(1)
    found = Candidates(ids, values, weights, largest, kept, edge)
    if rule.top_p < 1.0:
        found = replace(found, before=running - mass, whole=seen if total is None else total)
    return found, seen
