"""Sampling that a verifier can repeat, and the judgement of claimed tokens.

Token = argmax over the kept candidates of logit / temperature + Gumbel noise, which draws from
their softmax. The noise is a function of (trace seed, position in the output, token id) alone, so
a verifier with its own prefill logits knows which token the prover had to take, up to the small
difference of the logits. The margin of a claimed token says how far the verifier's logits would
have to move for it to be taken, in units of unscaled logits: each token with a better score has to
lose its lead or fall out of the kept candidates, whichever is nearer. So it is at most the lead of
the best score, 0 for the same token, and infinite outside the kept candidates.

Results do not depend on the batch: a row alone gives what it gives among others. With equal logits
they are equal on CPU and CUDA, bit for bit.

Only few noises are computed in full. With v = (word + 1/2) / 2**32 and e = -log(1 - v), noise is
-log e, the token taken has the least e / weight, and v <= e bounds that ratio from below for the
price of one division; only tokens whose bound is below a known exact ratio get exact scores.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toploc.errors import InvalidLogits
from toploc.field import plain
from toploc.filters import (
    EDGE_LOGIT,
    EDGE_MASS,
    MASS_UNIT,
    Candidates,
    SamplingRule,
    candidates,
    distance_inside,
    distance_outside,
    row_blocks,
)
from toploc.floats import gumbel_of, log64
from toploc.philox import words_at, words_of_vocabulary
from toploc.verdict import UNMEASURED, ProofVerdict, refuse

__all__ = [
    "EDGE_LOGIT",
    "EDGE_MASS",
    "Claims",
    "SamplingLimits",
    "SamplingRule",
    "examine",
    "examine_texts",
    "gumbel_noise",
    "judge_sampling",
    "margins",
    "sample",
]

_BOUND_SLACK = 1.0 + 1e-4
"""Covers the rounding of the float32 bounds (about 1e-5), which only choose what is looked at."""

_JOINT_VALUES = 1 << 22
"""Logits of texts that are looked at together, of which a copy is made."""

_MOVE_ROWS = 64
"""Rows that are looked at in one go where tokens differ; bounds the memory."""


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """Largest figures of an acceptable trace, for float32 provers and verifiers.

    An honest float32 prefill moves logits by about 1e-5 to 1e-4, and a margin arises only where two
    scores are that near, so the mean of honest traces is below 1e-5: fifty times below the limit.
    One substituted token of 100 is refused from a margin of 0.05 on, and a margin over the clip
    counts by itself: the share allows none in fewer than 500 tokens. What is nearer is a near tie.
    Half precision on either side moves logits by 1e-2 and more (an honest mean of 0.002 was seen):
    set limits from honest runs there.
    """

    clip: float = 0.5
    """Margins count at most this much in the mean."""
    mean_margin: float = 0.0005
    over_share: float = 0.002
    """Share of tokens with a margin over the clip or outside the kept candidates."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Figures of claimed tokens, each [n] in float32."""

    margins: Tensor
    """0 where the verifier takes the same token, infinite outside the kept candidates."""
    distances: Tensor
    """As `margins`, but finite outside the candidates: how far the logits would have to move."""
    logprobs: Tensor
    """In the distribution drawn from. A token beside the kept candidates has what its logit would
    have among them; one outside the vocabulary has minus infinity."""


@torch.no_grad()
def gumbel_noise(seeds: Tensor, positions: Tensor, token_ids: Tensor) -> Tensor:
    """Noise [n, m] in float32 for seeds [n], positions [n] and token ids [n, m]."""
    return gumbel_of(words_at(seeds, positions, token_ids))


@torch.no_grad()
def sample(
    logits: Tensor, seeds: Tensor, positions: Tensor, rule: SamplingRule
) -> tuple[Tensor, Tensor]:
    """Draw a token for each row of logits [n, V], float32.

    Returns the ids [n], int64, and their log-probabilities [n], float32, in the distribution drawn
    from: softmax of the scaled logits over the kept candidates; for greedy, of all unscaled logits.
    """
    seeds, positions = seeds.to(logits.device), positions.to(logits.device)
    _check_rows(logits, seeds, positions)
    if len(logits) == 0:
        return seeds.new_empty(0, dtype=torch.int64), logits.new_empty(0)
    ids = torch.empty_like(seeds, dtype=torch.int64)
    logprobs = logits.new_empty(len(logits))
    for rows, found in candidates(logits, rule):
        taken, value = _best(found, logits.shape[1], seeds[rows], positions[rows], rule)
        ids[rows], logprobs[rows] = taken, _logprobs(found, value, rule)
    return ids, logprobs


def margins(
    logits: Tensor, token_ids: Tensor, seed: int, rule: SamplingRule, start: int = 0
) -> Tensor:
    """Margins [n], float32, of claimed tokens [n] at positions start, start + 1, ...

    0 where the verifier takes the same token; infinite for a token outside the kept candidates (by
    more than the edge tolerances of `toploc.filters`) or outside the vocabulary.
    """
    return examine(logits, token_ids, seed, rule, start).margins


@torch.no_grad()
def examine(
    logits: Tensor, token_ids: Tensor, seed: int, rule: SamplingRule, start: int = 0
) -> Claims:
    """What the verifier's logits [n, V] say about claimed tokens [n] at positions from `start`."""
    positions = torch.arange(start, start + len(token_ids), device=logits.device)
    return _examine(logits, token_ids, torch.full_like(positions, seed), positions, rule)


@torch.no_grad()
def examine_texts(texts: Sequence[tuple[Tensor, Tensor, int]], rule: SamplingRule) -> list[Claims]:
    """As `examine` of each text from position 0, (logits [n, V], token ids [n], seed).

    Short texts are looked at together, which saves most of the time and changes nothing else.
    """
    found: list[Claims] = []
    first = 0
    while first < len(texts):
        end, values = first + 1, texts[first][0].numel()
        while end < len(texts) and values + texts[end][0].numel() <= _JOINT_VALUES:
            values += texts[end][0].numel()
            end += 1
        found += _together(texts[first:end], rule)
        first = end
    return found


def _together(texts: Sequence[tuple[Tensor, Tensor, int]], rule: SamplingRule) -> list[Claims]:
    if len(texts) == 1:
        return [examine(*texts[0], rule)]
    for logits, token_ids, _ in texts:
        _check_rows(logits, token_ids)
    lengths = [len(token_ids) for _, token_ids, _ in texts]
    seeds = torch.tensor([seed for _, _, seed in texts]).repeat_interleave(torch.tensor(lengths))
    device = texts[0][0].device
    whole = _examine(
        torch.cat([logits for logits, _, _ in texts]),
        torch.cat([token_ids for _, token_ids, _ in texts]),
        seeds.to(device),
        torch.cat([torch.arange(length, device=device) for length in lengths]),
        rule,
    )
    columns = (whole.margins, whole.distances, whole.logprobs)
    return [Claims(*own) for own in zip(*(torch.split(c, lengths) for c in columns), strict=True)]


def _examine(
    logits: Tensor, token_ids: Tensor, seeds: Tensor, positions: Tensor, rule: SamplingRule
) -> Claims:
    """What logits [n, V] say about claimed tokens [n] at positions [n] of texts of seeds [n]."""
    claimed = token_ids.to(device=logits.device, dtype=torch.int64)
    _check_rows(logits, seeds, claimed)
    if len(logits) == 0:
        nothing = logits.new_empty(0)
        return Claims(nothing, nothing, nothing)
    known = (claimed >= 0) & (claimed < logits.shape[1])
    claimed = torch.where(known, claimed, 0)
    parts = candidates(logits, rule)
    if len(parts) == 1:
        return _examined(parts[0][1], logits, claimed, known, seeds, positions, rule)
    figures = Claims(*(torch.empty_like(logits[:, 0]) for _ in range(3)))
    for rows, found in parts:
        own = _examined(
            found, logits[rows], claimed[rows], known[rows], seeds[rows], positions[rows], rule
        )
        figures.margins[rows], figures.distances[rows] = own.margins, own.distances
        figures.logprobs[rows] = own.logprobs
    return figures


def _examined(
    found: Candidates,
    logits: Tensor,
    claimed: Tensor,
    known: Tensor,
    seeds: Tensor,
    positions: Tensor,
    rule: SamplingRule,
) -> Claims:
    """As `examine`, of rows that are looked at together."""
    best, best_logit = _best(found, logits.shape[1], seeds, positions, rule)
    own = logits.gather(1, claimed[:, None])[:, 0]
    gap = best_logit - own.to(torch.float64)
    if not rule.greedy:
        both = torch.stack([best, claimed], 1)
        noise = gumbel_noise(seeds, positions, both).to(torch.float64)
        gap = gap + rule.temperature * (noise[:, 0] - noise[:, 1])
    gap = torch.where(best == claimed, 0.0, gap.clamp(min=0.0))
    if not rule.greedy and (rule.top_p < 1.0 or rule.min_p > 0.0 or rule.top_k > 0):
        differing = torch.nonzero(gap > 0.0)[:, 0]
        # Rows that keep about as many candidates together: the widest decides.
        differing = differing[(found.weights[differing] > 0.0).sum(1).argsort()]
        for first in range(0, len(differing), _MOVE_ROWS):
            rows = differing[first : first + _MOVE_ROWS]
            gap[rows] = _least_move(
                found.of_rows(rows), logits[rows], claimed[rows], seeds[rows], positions[rows], rule
            )
    gap = gap.to(torch.float32)
    possible = known & (own > -math.inf)
    outside = ~possible | (own < found.edge)
    distance = torch.where(possible, gap, math.inf)
    rows = torch.nonzero(outside & possible)[:, 0]
    if len(rows):
        lacking = distance_outside(logits[rows], claimed[rows], rule)
        distance[rows] = torch.maximum(distance[rows], lacking)
    values = _logprobs(found, own.to(torch.float64), rule)
    return Claims(
        margins=torch.where(outside, math.inf, gap),
        distances=distance,
        logprobs=torch.where(known, values, -math.inf),
    )


def _least_move(
    found: Candidates,
    logits: Tensor,
    claimed: Tensor,
    seeds: Tensor,
    positions: Tensor,
    rule: SamplingRule,
) -> Tensor:
    """Margins [n], float64, of claimed tokens in rows in which others score better.

    All filters keep a top segment of the logits, so a token with a larger logit than the claimed
    one has to come down to that too before it can be dropped alone.
    """
    ids = found.ids
    if ids is None:
        ids = torch.arange(logits.shape[1], device=logits.device).expand(len(logits), -1)
    noise = gumbel_noise(seeds, positions, torch.cat([ids, claimed[:, None]], 1))
    noise = rule.temperature * noise.to(torch.float64)
    above = found.logits.to(torch.float64) - logits.gather(1, claimed[:, None]).to(torch.float64)
    lead = above + noise[:, :-1] - noise[:, -1:]
    drop = torch.maximum(distance_inside(found, logits, rule), above)
    move = torch.minimum(lead, drop)
    return torch.where(found.weights > 0.0, move, 0.0).amax(1).clamp(min=0.0)


def judge_sampling(
    margins: Tensor,
    limits: SamplingLimits = SamplingLimits(),
) -> ProofVerdict:
    """Judge the margins of one trace; no tokens, NaN and negative margins are refused."""
    values = margins.to(torch.float64)
    if values.dim() != 1 or len(values) == 0:
        return refuse(f"no_margins: shape {list(values.shape)}; at least one token is needed")
    if not bool((values >= 0.0).all()):
        return refuse("invalid_margins: a margin is NaN or negative")
    over = values > limits.clip
    mean = float(values.clamp(max=limits.clip).mean())
    share = float(over.to(torch.float64).mean())
    figures = {
        "tokens": len(values),
        "same_token_share": float((values == 0.0).to(torch.float64).mean()),
        "margin_mean": mean,
        "over_clip_share": share,
        "outside": int(torch.isinf(values).sum()),
    }
    reasons = []
    if not mean <= limits.mean_margin:
        reasons.append(f"margin_mean: {mean:.4g}, allowed is {limits.mean_margin}")
    if not share <= limits.over_share:
        reasons.append(
            f"over_clip_share: {int(over.sum())} of {len(values)} tokens are outside the kept "
            f"candidates or over {limits.clip}, allowed is a share of {limits.over_share}"
        )
    rate = UNMEASURED if reasons else 0.0
    return ProofVerdict(not reasons, tuple(reasons), figures, rate=rate)


def _check_rows(logits: Tensor, *others: Tensor) -> None:
    if logits.dim() != 2 or logits.dtype != torch.float32 or logits.shape[1] == 0:
        raise InvalidLogits(
            f"logits are {logits.dtype} {list(logits.shape)}; give float32 [rows, vocabulary]"
        )
    for other in others:
        if other.shape != (len(logits),):
            raise InvalidLogits(
                f"logits {list(logits.shape)} do not go with a tensor {list(other.shape)}; give "
                "one number per row"
            )


def _logprobs(found: Candidates, logit: Tensor, rule: SamplingRule) -> Tensor:
    """Log-probabilities [n], float32, of tokens with these logits [n], float64."""
    scaled = (logit - found.largest[:, 0].to(torch.float64)) * rule.inverse_temperature
    mass = found.total.to(torch.float64) * (1.0 / MASS_UNIT)
    return (scaled - log64(mass)).to(torch.float32).clamp_(max=0.0)


def _best(
    found: Candidates, vocabulary: int, seeds: Tensor, positions: Tensor, rule: SamplingRule
) -> tuple[Tensor, Tensor]:
    """Token id with the best score of each row (lowest among equals) and its float64 logit."""
    if rule.greedy:
        taken = found.logits.argmax(1)
        return taken, found.logits.gather(1, taken[:, None])[:, 0].to(torch.float64)
    best = _best_on_cpu if found.logits.device.type == "cpu" else _best_of
    parts = [
        best(found, rows, _words(found, rows, vocabulary, seeds, positions), rule)
        for rows in row_blocks(found.logits)
    ]
    taken, value = (torch.cat(column) for column in zip(*parts, strict=True))
    return taken, value


def _words(
    found: Candidates, rows: slice, vocabulary: int, seeds: Tensor, positions: Tensor
) -> Tensor:
    """The words of the candidates of some rows [n, width]."""
    if found.ids is not None and 4 * found.ids.shape[1] <= vocabulary:
        return words_at(seeds[rows], positions[rows], found.ids[rows])
    words = words_of_vocabulary(seeds[rows], positions[rows], vocabulary)
    return words if found.ids is None else words.gather(1, found.ids[rows])


def _best_on_cpu(
    found: Candidates, rows: slice, words: Tensor, rule: SamplingRule
) -> tuple[Tensor, Tensor]:
    """As `_best_of`, by compiled code."""
    from toploc import kernels

    ids = torch.arange(words.shape[1])[None, :] if found.ids is None else found.ids[rows]
    taken, value = kernels.best(
        plain(words.numpy()),
        plain(found.weights[rows].numpy()),
        plain(found.logits[rows].numpy()),
        plain(ids.numpy()),
        rule.inverse_temperature,
        _BOUND_SLACK,
    )
    return torch.from_numpy(taken), torch.from_numpy(value)


def _best_of(
    found: Candidates, rows: slice, words: Tensor, rule: SamplingRule
) -> tuple[Tensor, Tensor]:
    """As `_best`, of some rows and the words [n, width] of their candidates."""
    row, place = _contenders(words, found.weights[rows])
    logits = found.logits[rows]
    logit = logits[row, place].to(torch.float64)
    ids = place if found.ids is None else found.ids[rows][row, place]
    score = logit * rule.inverse_temperature + gumbel_of(words[row, place]).to(torch.float64)
    best = score.new_full((len(logits),), -math.inf).scatter_reduce_(0, row, score, "amax")
    winner = score == best[row]
    taken = ids.new_full((len(logits),), torch.iinfo(torch.int64).max)
    taken.scatter_reduce_(0, row[winner], ids[winner], "amin")
    chosen = winner & (ids == taken[row])
    value = torch.empty_like(best)
    value[row[chosen]] = logit[chosen]
    return taken, value


def _contenders(words: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Row and place of every token that may have the best score."""
    bound = words.to(torch.float32).add_(0.5).mul_(2.0**-32).div_(weights)
    # The token with the least bound has weight <= 1, so v <= least, and its exact ratio is at most
    # -log(1 - least), since -log(1 - v) / v grows with v.
    least = bound.amin(1, keepdim=True).to(torch.float64).clamp_(max=1.0 - 2.0**-33)
    limit = (torch.log1p(-least) * -_BOUND_SLACK).to(torch.float32)
    row, place = torch.nonzero(bound <= limit, as_tuple=True)
    return row, place
