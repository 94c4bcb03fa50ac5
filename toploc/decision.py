"""The judgement of a whole trace: stronger figures than v1's, taken over all its chunks and tokens.

Per chunk, over the verifier's own top-k values: the distance between claimed and own value in
units in the last place (ULP) over the ordered bits of bfloat16, so that it goes on across exponent
borders and through zero; and the share of values that the prover does not have at all. Near the
k-th value either side may have taken another one of equals, so what lies within a few ULP of it
counts only where the two agree about having it.

Per token: the margin between the claimed token and the one that the seed draws, its mean for a
steady choice among near ties and its root mean square for a few choices of something else; and the
difference of the log-probabilities. A trace has few tokens or many: figures over few of them
scatter more, so limits depend on their number. Comparisons are written so that NaN fails.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from toploc.field import Floats, Ints
from toploc.sampling import Claims, SamplingLimits
from toploc.verdict import Examination
from toploc.verify import FAR, ordered

EDGE = 8
"""ULP above the k-th magnitude within which a missing value is not held against anybody."""

TOKEN_BANDS = (1, 8, 32, 64, 128, 256)
"""Limits of a trace are those of the last band that starts at no more than its tokens."""
ROW_BANDS = (1, 8, 32)
"""The same for single chunks and their rows."""
CHUNKS_PER_ALLOWANCE = 32
"""One chunk of this many may be beyond the limit of single chunks, within twice the limit."""
TOKENS_PER_ALLOWANCE = 1024
"""One token of this many may be beyond the limit of single tokens."""

SETTLED = 32
"""Tokens from which on a trace can be too exact for a dtype."""

STATE_FIGURES = ("error_mean", "error_typical", "missing_mean")
TOKEN_FIGURES = ("margin_mean", "margin_rms", "logprob_error")
TRACE_FIGURES = STATE_FIGURES + TOKEN_FIGURES
"""Figures with a limit per band of tokens."""
CHUNK_FIGURES = ("chunk_error", "chunk_missing")
"""Figures with a limit per band of rows."""

CLIP = SamplingLimits().clip
CERTAIN = 1e3
"""Stands for an infinite margin or difference, so that figures stay numbers."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that the limits are for."""

    tokens: int
    rows: tuple[int, ...] = ()
    """Of each chunk."""
    trace: dict[str, float] = field(default_factory=dict)
    chunk: dict[str, Floats] = field(default_factory=dict)
    margins: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Evidence:
    """What was measured of one trace."""

    rows: Ints
    """Rows of each chunk [chunks]."""
    errors: Floats
    """Mean distance in ULP of the values that both sides have, each at most FAR [chunks]."""
    missing: Floats
    """Share of the settled values that the prover does not have, or has far away [chunks]."""
    distances: Floats
    """Margins of the tokens in unscaled logits [tokens]."""
    logprob_errors: Floats
    """Differences of the log-probabilities [tokens]."""

    @functools.cached_property
    def figures(self) -> Figures:
        """What the limits are for."""
        weights = self.rows / self.rows.sum()
        margins = np.minimum(self.distances, CLIP)
        order = np.argsort(self.errors)
        middle = order[np.searchsorted(np.cumsum(weights[order]), 0.5 - 1e-9)]
        return Figures(
            tokens=len(self.distances),
            rows=tuple(self.rows.tolist()),
            trace={
                "error_mean": float(self.errors @ weights),
                "error_typical": float(self.errors[middle]),
                "missing_mean": float(self.missing @ weights),
                "margin_mean": float(margins.mean()),
                # Rounding moves logits by normal amounts: their squares weigh as its likelihood.
                "margin_rms": float(np.sqrt((margins**2).mean())),
                "logprob_error": float(np.minimum(self.logprob_errors, CLIP).mean()),
            },
            chunk={"chunk_error": self.errors, "chunk_missing": self.missing},
            margins=self.distances,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest figures of an acceptable trace, in one dtype."""

    trace: Mapping[str, tuple[float, ...]]
    """TRACE_FIGURES: one limit per band of TOKEN_BANDS."""
    chunk: Mapping[str, tuple[float, ...]]
    """CHUNK_FIGURES: one limit per band of ROW_BANDS."""
    token_margin: float
    """Largest margin of a single token, the last one always included."""
    least_error: float
    """Least `error_typical` of an honest trace of at least SETTLED tokens in this dtype. Whose
    states are closer than that did not compute in it, and has no claim to its wider margins."""


Against = Callable[[Evidence, Limits], list[str]]
"""The limits that evidence is beyond, "code: what was found"."""


def evidence(examination: Examination, claims: Claims, claimed_logprobs: Tensor) -> Evidence:
    """What to judge of proofs that could be compared, and of the tokens [n] beside them."""
    return evidence_of_all([(examination, claims, claimed_logprobs)])[0]


def evidence_of_all(texts: Sequence[tuple[Examination, Claims, Tensor]]) -> list[Evidence]:
    """As `evidence` of each text; all are looked at together."""
    states = _state_evidence([examination for examination, _, _ in texts])
    tokens = _token_evidence([claims for _, claims, _ in texts], [own for _, _, own in texts])
    return [
        Evidence(rows, errors, missing, distances, logprob_errors)
        for (rows, errors, missing), (distances, logprob_errors) in zip(states, tokens, strict=True)
    ]


def state_evidence(examination: Examination) -> Evidence:
    """The same of states beside which no tokens are judged: each row counts as a faultless one."""
    ((rows, errors, missing),) = _state_evidence([examination])
    return Evidence(rows, errors, missing, np.zeros(rows.sum()), np.zeros(rows.sum()))


def token_evidence(claims: Claims, claimed_logprobs: Tensor) -> Evidence:
    """The same of tokens [n] alone: their states count as equal."""
    ((distances, logprob_errors),) = _token_evidence([claims], [claimed_logprobs])
    return Evidence(np.array([len(distances)]), np.zeros(1), np.zeros(1), distances, logprob_errors)


def _state_evidence(examinations: Sequence[Examination]) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Rows, errors and missing values of each text."""
    comparisons = []
    for examination in examinations:
        if examination.comparison is None:
            raise ValueError(f"there is nothing to compare: {examination.faults}")
        comparisons.append(examination.comparison)
    errors, missing = chunk_figures(
        np.concatenate([comparison.patterns for comparison in comparisons]),
        np.concatenate([comparison.claimed for comparison in comparisons]),
    )
    edges = np.cumsum([len(examination.rows) for examination in examinations])[:-1]
    rows = (examination.rows for examination in examinations)
    return zip(rows, np.split(errors, edges), np.split(missing, edges), strict=True)


def _token_evidence(
    claims: Sequence[Claims], claimed_logprobs: Sequence[Tensor]
) -> Iterator[tuple[Floats, Floats]]:
    """Distances and differences of the log-probabilities of each text."""
    distances = torch.cat([own.distances for own in claims])
    ours = torch.cat([own.logprobs for own in claims])
    apart = (ours.to(torch.float64) - torch.cat(list(claimed_logprobs)).to(torch.float64)).abs()
    apart = torch.where(apart.isnan(), CERTAIN, apart)
    edges = np.cumsum([len(own.logprobs) for own in claims])[:-1]
    columns = (np.split(_certain(column), edges) for column in (distances, apart))
    return zip(*columns, strict=True)


def chunk_figures(own: Ints, claimed: Ints) -> tuple[Floats, Floats]:
    """Mean ULP distance and share of missing values of each chunk, by its patterns [chunks, k]."""
    distance = np.abs(ordered(claimed) - ordered(own))
    far = distance >= FAR
    magnitude = own & 0x7FFF
    settled = magnitude - magnitude.min(1, keepdims=True) > EDGE
    # A chunk of equal magnitudes has no edge to speak of: there everything counts.
    settled |= settled.sum(1, keepdims=True) < own.shape[1] // 4
    # In a chunk of few values the least of the k are near zero, where any noise is many ULP.
    large = magnitude >= np.median(magnitude, axis=1, keepdims=True) - FAR
    settled &= large
    counted = (settled | ~far) & large
    errors = np.where(counted, np.minimum(distance, FAR), 0).sum(1) / counted.sum(1)
    return errors, (far & settled).sum(1) / settled.sum(1)


def beyond(found: Evidence, limits: Limits) -> list[str]:
    """The limits that a trace is beyond, "code: what was found"."""
    return beyond_states(found, limits) + too_exact(found, limits) + beyond_tokens(found, limits)


def beyond_states(found: Evidence, limits: Limits) -> list[str]:
    """What speaks against the hidden states alone."""
    seen = found.figures
    reasons = _over(seen, limits, STATE_FIGURES)
    bands = [band(ROW_BANDS, rows) for rows in found.rows.tolist()]
    allowance = len(found.rows) // CHUNKS_PER_ALLOWANCE
    for name, values in seen.chunk.items():
        allowed = np.array([limits.chunk[name][chunk] for chunk in bands])
        over = ~(values <= allowed)
        if over.sum() > allowance or (~(values <= 2 * allowed)).any():
            worst = int(np.argmax(np.where(over, values, -1.0)))
            reasons.append(
                f"{name}: chunk {worst} has {values[worst]:.4g}, allowed is {allowed[worst]:.4g}"
            )
    return reasons


def too_exact(found: Evidence, limits: Limits) -> list[str]:
    """Whether the states are closer than any that were computed in the limits' dtype."""
    error = found.figures.trace["error_typical"]
    if found.rows.sum() < SETTLED or error >= limits.least_error:
        return []
    return [
        f"too_exact: error_typical is {error:.4g}, and no honest trace of this dtype is below "
        f"{limits.least_error:.4g}"
    ]


def beyond_tokens(found: Evidence, limits: Limits) -> list[str]:
    """What speaks against the tokens alone."""
    seen = found.figures
    reasons = _over(seen, limits, TOKEN_FIGURES)
    margins = seen.margins
    wide = ~(margins <= limits.token_margin)
    if wide.sum() > len(margins) // TOKENS_PER_ALLOWANCE or wide[-1]:
        place = len(margins) - 1 if wide[-1] else int(margins.argmax())
        reasons.append(
            f"token_margin: token {place} is {margins[place]:.4g} from what the seed draws, "
            f"allowed is {limits.token_margin:.4g}"
        )
    return reasons


def _over(seen: Figures, limits: Limits, names: tuple[str, ...]) -> list[str]:
    at = band(TOKEN_BANDS, seen.tokens)
    return [
        f"{name}: {seen.trace[name]:.4g} over {seen.tokens} tokens, allowed is "
        f"{limits.trace[name][at]:.4g}"
        for name in names
        if not seen.trace[name] <= limits.trace[name][at]
    ]


def beyond_all(
    found: Evidence, limits: Mapping[str, Limits], against: Against = beyond
) -> list[str]:
    """Nothing if a trace is within all limits of one dtype, else those that come nearest."""
    reasons = [(dtype, against(found, own)) for dtype, own in limits.items()]
    dtype, nearest = min(reasons, key=lambda pair: len(pair[1]))
    return [f"{reason} ({dtype})" for reason in nearest]


def summary(found: Evidence) -> dict[str, float | int]:
    """The figures as plain numbers, with the worst chunk and token."""
    seen = found.figures
    worst = {name: float(values.max()) for name, values in seen.chunk.items()}
    return seen.trace | worst | {"token_margin": float(seen.margins.max()), "tokens": seen.tokens}


def band(edges: tuple[int, ...], count: int) -> int:
    """The last band that starts at no more than `count`."""
    return sum(edge <= count for edge in edges[1:])


def _certain(values: Tensor) -> Floats:
    found: Floats = values.to(torch.float64).clamp(max=CERTAIN).cpu().numpy()
    return found
