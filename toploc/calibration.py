"""Limits from honest runs: a profile of one model revision.

Each dtype has limits of its own, since half precision differs from the verifier a hundred times
more than single precision does, in its margins too. A limit is what honest traces exceed at the
stated rate of false positives: at least the largest value seen and `LEAST`, and above them as far
as an exponential tail through the largest tenth reaches, with the uncertainty of so few values. The
rate is shared among all figures of a trace (union bound). Beside it stands what was counted: limits
from one half of the traces, held against the other half, with the exact binomial bound.

Invariants: statistics in, profile out; the same runs give the same profile.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toploc.decision import (
    CHUNK_FIGURES,
    ROW_BANDS,
    SETTLED,
    TOKEN_BANDS,
    TRACE_FIGURES,
    Evidence,
    Limits,
    band,
    beyond_all,
)
from toploc.errors import MalformedProfile
from toploc.field import Floats
from toploc.profile import FIELDS, HeldOut, Profile

CONFIDENCE = 0.95
MIN_TRACES = 20
"""Values that a band needs for limits of its own; with fewer it has those of the band before."""
CHUNKS = 8
"""Chunks of a trace that share the rate of a figure of single chunks (256 tokens)."""

LEAST: Mapping[str, float] = {
    "error_mean": 0.25,
    "error_typical": 0.25,
    "missing_mean": 0.02,
    "margin_mean": 5e-4,
    "margin_rms": 5e-3,
    "logprob_error": 2e-3,
    "chunk_error": 0.5,
    "chunk_missing": 0.05,
    "token_margin": 0.05,
}
"""Least limits: what is below says nothing, whatever the runs at hand happened to show."""


@dataclass(frozen=True, slots=True)
class Honest:
    """One honest trace."""

    environment: str
    """Of its prover."""
    mode: str
    """How it was computed: batch size, decode or prefill."""
    trace: str
    """Which trace it is; its beginnings and other provers' replays of it have the same name."""
    evidence: Evidence


def fit(model: str, revision: str, honest: Sequence[Honest], rate: float) -> Profile:
    """The profile of honest traces (and of beginnings of them, for the shorter bands)."""
    if not 0.0 < rate < 0.5:
        raise MalformedProfile(f"rate is {rate}; give the share of honest traces to refuse, 1e-4")
    names = sorted({one.trace for one in honest})
    if len(names) < 2 * MIN_TRACES:
        raise MalformedProfile(
            f"{len(names)} honest traces; at least {2 * MIN_TRACES} are needed: run more"
        )
    bad = sorted({e for one in honest if len((e := one.environment).split("|")) != len(FIELDS)})
    if bad:
        raise MalformedProfile(f"environments {bad}; allowed is {'|'.join(FIELDS)}")
    one_half = set(names[::2])
    trial = fit_limits([one for one in honest if one.trace in one_half], rate)
    whole = _whole(one for one in honest if one.trace not in one_half)
    refused = sum(bool(beyond_all(one.evidence, trial)) for one in whole)
    count = len(_whole(honest))
    return Profile(
        model=model,
        revision=revision,
        rate=rate,
        extrapolated=count * rate < 1.0,
        traces=count,
        environments=tuple(sorted({one.environment for one in honest})),
        modes=tuple(sorted({one.mode for one in honest})),
        held_out=HeldOut(len(whole), refused, upper_bound(refused, len(whole))),
        limits=fit_limits(honest, rate),
    )


def fit_limits(honest: Sequence[Honest], rate: float) -> dict[str, Limits]:
    """Limits by dtype."""
    groups: dict[str, list[Honest]] = {}
    for one in honest:
        dtype = one.environment.split("|")[FIELDS.index("dtype")]
        groups.setdefault(dtype, []).append(one)
    return {dtype: _limits(group, rate / len(LEAST)) for dtype, group in sorted(groups.items())}


def _limits(group: Sequence[Honest], share: float) -> Limits:
    """A run and its beginnings are not independent: each counts once for a limit."""
    runs = _runs(group)
    seen = [(run, one.evidence.figures) for run, parts in enumerate(runs) for one in parts]
    trace, chunk = {}, {}
    for name in TRACE_FIGURES:
        worst: dict[tuple[int, int], float] = {}
        for run, own in seen:
            at = (band(TOKEN_BANDS, own.tokens), run)
            worst[at] = max(own.trace[name], worst.get(at, 0.0))
        trace[name] = _by_band(worst, len(TOKEN_BANDS), share, LEAST[name])
    for name in CHUNK_FIGURES:
        single = {
            (band(ROW_BANDS, rows), run, place, rows): float(own.chunk[name][place])
            for run, own in seen
            for place, rows in enumerate(own.rows)
        }
        chunk[name] = _by_band(single, len(ROW_BANDS), share / CHUNKS, LEAST[name])
    largest = np.array([parts[-1].evidence.figures.margins.max() for parts in runs])
    typical = [own.trace["error_typical"] for _, own in seen if own.tokens >= SETTLED]
    return Limits(
        trace,
        chunk,
        token_margin=max(LEAST["token_margin"], tail_limit(largest, share)),
        least_error=min(typical, default=0.0) / 2,
    )


def _by_band(
    values: Mapping[Any, float], count: int, share: float, least: float
) -> tuple[float, ...]:
    """A limit per band, which is what keys begin with; fewer tokens or rows have no tighter one."""
    bands = np.array([key[0] for key in values])
    found = np.array(list(values.values()))
    needed = [0.0] * count
    for place in range(count):
        own = found[bands == place]
        if len(own) >= MIN_TRACES:
            needed[place] = tail_limit(own, share)
        elif place:
            needed[place] = max(needed[place - 1], float(own.max(initial=0.0)))
        else:
            needed[place] = tail_limit(found, share)
    return tuple(max(least, *needed[place:]) for place in range(count))


def tail_limit(values: Floats, rate: float) -> float:
    """The value that one more of them exceeds with probability `rate`; at least the largest one.

    Where these are too few to count, the largest tenth (k of n) is taken to lie exponentially above
    the next value. One more is above that with probability (k + 1) / (n + 1), and its excess over
    the k excesses' mean then has the distribution F(2, 2k): P(above y means) = (1 + y / k) ** -k.
    """
    ordered = np.sort(values)
    count = len(ordered)
    top = min(max(10, count // 10), count - 1)
    if not top:
        return float(ordered[-1])
    start = float(ordered[count - 1 - top])
    mean_excess = float((ordered[count - top :] - start).mean())
    ratio = (top + 1) / (count + 1) / rate
    reach = top * max(0.0, math.expm1(math.log(ratio) / top))
    return max(float(ordered[-1]), start + mean_excess * reach)


def upper_bound(events: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Exact one-sided upper bound of a rate (Clopper and Pearson, 1934)."""
    if events >= trials:
        return 1.0
    low, high = events / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(events, trials, middle) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


def lower_bound(events: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Exact one-sided lower bound of a rate."""
    return 1.0 - upper_bound(trials - events, trials, confidence)


def _at_most(events: int, trials: int, rate: float) -> float:
    """Probability of at most so many events."""
    if rate <= 0.0 or rate >= 1.0:
        return 1.0 if rate <= 0.0 else 0.0
    logs = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(rate) + (trials - k) * math.log1p(-rate)
        for k in range(events + 1)
    ]  # fmt: skip
    return math.fsum(math.exp(value) for value in logs)


def _runs(honest: Iterable[Honest]) -> list[list[Honest]]:
    """What one prover made of one trace in one mode, the shortest beginning first."""
    runs: dict[tuple[str, str, str], list[Honest]] = {}
    for one in honest:
        runs.setdefault((one.trace, one.environment, one.mode), []).append(one)
    return [sorted(run, key=lambda one: int(one.evidence.rows.sum())) for run in runs.values()]


def _whole(honest: Iterable[Honest]) -> list[Honest]:
    """Of each run the whole: beginnings are no traces of their own."""
    return [parts[-1] for parts in _runs(honest)]
