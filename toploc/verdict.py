"""Accept or refuse the proofs of one sequence. Fails closed.

A sequence is accepted only if all of this holds: the proof bytes are exactly one proof per
started chunk of rows; every proof is usable; every modulus is one that honest building can give;
every polynomial is non-trivial; every chunk is within the limits. Anything else is a refusal with
its reasons, "code: what was found". The verifier's own activations have to be finite bf16 with
enough values: that they are not is its own fault, and raises UnprovableActivations.

Why non-trivial: of the 128 large values of a chunk nearly all share two or three exponents, so a
constant polynomial of a common value passes loose limits without any computation. An honest
polynomial through 128 points is dense and of full degree, up to odds of 1 in 65497 per
coefficient, and takes any value off its points. A tiny modulus would do the same service to a
forger (all indices land on a few arguments), so it must be above 2**15, exactly 65497 where no
two indices can clash, and keep the verifier's own indices apart as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from toploc.build import segments
from toploc.errors import UnprovableActivations
from toploc.field import SMALLEST_MODULUS, Floats, Ints, P, evaluate
from toploc.inspection import degrees, trivial_shapes
from toploc.proof import WORD
from toploc.verify import Comparison, compare, exponents

SMALLEST_TOPK = 16
"""With fewer coefficients an honest polynomial cannot be told from a trivial one."""

UNMEASURED = 1e-4
"""Rate that is taken for limits whose refusals of honest traces nobody has counted."""

_SPREAD_POINTS = 256
_SPREAD_SHARE = 0.25

Figures = dict[str, int | float]


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest figures of an acceptable chunk, inclusive; the defaults are the TOPLOC paper's."""

    exp_mismatches: int = 38
    """Values whose exponent differs, or whose sign does."""
    mant_err_mean: float = 10.0
    mant_err_median: float = 8.0


@dataclass(frozen=True, slots=True)
class ProofVerdict:
    """Accepted only without any reason against it. Figures are plain numbers."""

    accepted: bool
    reasons: tuple[str, ...]
    figures: Figures = field(default_factory=dict)
    soft: bool = False
    """Refused where no honest run was ever seen: to be done again elsewhere, never punished."""
    rate: float = 0.0
    """Refused by limits alone, which refuse this share of honest traces: `toploc.record` says when
    many such refusals prove a lie. 0 where one refusal does."""


def join(*verdicts: ProofVerdict) -> ProofVerdict:
    """One verdict of several looks at the same trace."""
    refused = [verdict for verdict in verdicts if not verdict.accepted]
    held = [verdict for verdict in refused if not verdict.soft]
    return ProofVerdict(
        not refused,
        tuple(reason for verdict in verdicts for reason in verdict.reasons),
        {name: value for verdict in verdicts for name, value in verdict.figures.items()},
        soft=bool(refused) and not held,
        rate=0.0 if any(not v.rate for v in held) else max((v.rate for v in held), default=0.0),
    )


def refuse(*reasons: str, figures: Figures | None = None) -> ProofVerdict:
    """A refusal."""
    return ProofVerdict(False, reasons, figures or {})


@dataclass(frozen=True, slots=True)
class Examination:
    """What proofs say before any limit is asked: faults that no limit forgives, or figures."""

    faults: tuple[str, ...]
    comparison: Comparison | None = None
    """None where the proofs could not be compared with anything."""
    rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Rows of each chunk."""
    figures: Figures = field(default_factory=dict)


@torch.no_grad()
def judge_proofs(
    hidden: Tensor,
    proofs: bytes,
    limits: Limits = Limits(),
    topk: int = 128,
    decode_batching_size: int = 32,
) -> ProofVerdict:
    """Judge concatenated proofs against the verifier's hidden states [rows, hidden] in bf16.

    For models without a calibration profile; with one see `toploc.decision`.
    """
    return judge_examined(examine_proofs(hidden, proofs, topk, decode_batching_size), limits)


def judge_examined(found: Examination, limits: Limits) -> ProofVerdict:
    """As `judge_proofs`, of proofs that have been examined."""
    if found.comparison is None:
        return refuse(*found.faults)
    reasons = (*found.faults, *_over_limits(found.comparison, limits))
    rate = UNMEASURED if reasons and not found.faults else 0.0
    return ProofVerdict(not reasons, reasons, found.figures, rate=rate)


@torch.no_grad()
def examine_proofs(
    hidden: Tensor, proofs: bytes, topk: int = 128, decode_batching_size: int = 32
) -> Examination:
    """Compare proofs with hidden states [rows, hidden] in bf16; see the module for the faults."""
    return examine_all([(hidden, proofs)], topk, decode_batching_size)[0]


@torch.no_grad()
def examine_all(
    texts: Sequence[tuple[Tensor, bytes]], topk: int = 128, decode_batching_size: int = 32
) -> list[Examination]:
    """As `examine_proofs` of each text, (hidden states, proofs).

    The chunks of all are looked at together, which saves most of the time and changes nothing else.
    """
    if topk < SMALLEST_TOPK or decode_batching_size < 1:
        fault = (
            f"settings: topk={topk}, decode_batching_size={decode_batching_size}; at least "
            f"{SMALLEST_TOPK} and 1 can be judged"
        )
        return [Examination((fault,)) for _ in texts]
    found: list[Examination | None] = []
    usable: list[tuple[Tensor, Ints]] = []
    for hidden, proofs in texts:
        faults = _unreadable(hidden, proofs, topk, decode_batching_size)
        if not faults:
            words = np.frombuffer(proofs, dtype=">u2").reshape(-1, 1 + topk).astype(np.int64)
            faults = _malformed(words)
        if not faults:
            usable.append((hidden, words))
        found.append(Examination(tuple(faults)) if faults else None)
    compared = iter(_compared(usable, topk, decode_batching_size) if usable else ())
    return [next(compared) if own is None else own for own in found]


def _compared(
    texts: Sequence[tuple[Tensor, Ints]], topk: int, decode_batching_size: int
) -> list[Examination]:
    """As `examine_all`, of hidden states and words [chunks, 1 + topk] that may be proofs."""
    counts = [len(words) for _, words in texts]
    ends = np.cumsum(counts).tolist()
    places = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    owners = np.repeat(np.arange(len(texts)), counts).tolist()
    numbers = [number for count in counts for number in range(count)]
    joint = np.concatenate([words for _, words in texts])
    moduli, coefficients = joint[:, 0], joint[:, 1:]
    parts = [
        part
        for hidden, _ in texts
        for part in segments(hidden, decode_batching_size, skip_prefill=True)
    ]
    comparison = compare(parts, coefficients, moduli, topk)
    lengths = np.repeat([part.shape[1] for part in parts], [len(part) for part in parts])
    faults: list[list[str]] = [[] for _ in texts]
    for chunk, fault in (
        *_implausible_moduli(moduli, lengths, comparison, numbers),
        *_trivial(moduli, coefficients, comparison, numbers),
    ):
        faults[owners[chunk]].append(fault)
    figures = _figures(coefficients, comparison, places)
    return [
        Examination(
            (*own, *_replayed(coefficients[place])),
            comparison.of(place),
            lengths[place] // hidden.shape[1],
            {"rows": len(hidden)} | seen,
        )
        for (hidden, _), place, own, seen in zip(texts, places, faults, figures, strict=True)
    ]


def _unreadable(hidden: Tensor, proofs: bytes, topk: int, decode_batching_size: int) -> list[str]:
    """Why there are no numbers to look at, if so."""
    if hidden.dim() != 2 or hidden.dtype != torch.bfloat16:
        raise UnprovableActivations(
            f"the verifier's states are {hidden.dtype} {list(hidden.shape)}; needed are bfloat16 "
            "[rows, hidden]"
        )
    if len(hidden) == 0:
        return ["no_rows: there are no rows, and nothing was proven"]
    chunks = -(-len(hidden) // decode_batching_size)
    size = WORD * (1 + topk)
    if not isinstance(proofs, bytes) or len(proofs) != chunks * size:
        got = f"{len(proofs)} bytes" if isinstance(proofs, bytes) else type(proofs).__name__
        return [f"proof_length: {got}; {len(hidden)} rows need {chunks} proofs of {size} bytes"]
    return []


def _replayed(coefficients: Ints) -> list[str]:
    """One polynomial for several chunks: rows of different positions never give the same."""
    first: dict[bytes, int] = {}
    return [
        f"replayed: chunk {chunk} has the polynomial of chunk {earlier}"
        for chunk, row in enumerate(coefficients)
        if (earlier := first.setdefault(row.tobytes(), chunk)) != chunk
    ]


def _malformed(words: Ints) -> list[str]:
    """Numbers that are no proof: the null proof among them."""
    moduli, coefficients = words[:, 0], words[:, 1:]
    if 1 <= moduli.min() and moduli.max() <= P and coefficients.max() < P:
        return []
    reasons = []
    for chunk in np.flatnonzero((moduli < 1) | (moduli > P))[:3]:
        null = ", the null proof" if moduli[chunk] == 0 else ""
        reasons.append(
            f"proof_modulus: chunk {chunk} has modulus {moduli[chunk]}{null}; allowed are 1 to {P}"
        )
    for chunk in np.flatnonzero((coefficients >= P).any(1))[:3]:
        reasons.append(
            f"proof_coefficients: chunk {chunk} has a coefficient {coefficients[chunk].max()}; "
            f"allowed are 0 to {P - 1}"
        )
    return reasons


def _implausible_moduli(
    moduli: Ints, lengths: Ints, comparison: Comparison, numbers: Sequence[int]
) -> Iterator[tuple[int, str]]:
    """Moduli that the search of an honest builder does not end at; chunks go by their `numbers`."""
    residues = np.sort(comparison.indices % moduli[:, None], axis=1)
    clashes = (residues[:, 1:] == residues[:, :-1]).sum(1)
    lowest = np.where(lengths <= P, P, SMALLEST_MODULUS + 1)
    tolerated = comparison.indices.shape[1] // 8
    for chunk in np.flatnonzero((moduli < lowest) | (clashes > tolerated)).tolist():
        yield (
            chunk,
            f"proof_modulus: chunk {numbers[chunk]} has modulus {moduli[chunk]}, which no honest "
            f"search ends at: at least {lowest[chunk]} is due, and {clashes[chunk]} indices clash "
            f"(at most {tolerated})",
        )


def _trivial(
    moduli: Ints, coefficients: Ints, comparison: Comparison, numbers: Sequence[int]
) -> Iterator[tuple[int, str]]:
    """Polynomials that could have been written down without computing anything."""
    repeated = _off_points_like_on_points(moduli, coefficients, comparison)
    for chunk, shape in enumerate(trivial_shapes(coefficients)):
        if shape:
            code, _, what = shape.partition(": ")
            yield chunk, f"{code}: chunk {numbers[chunk]}: {what}"
        elif repeated[chunk] > _SPREAD_SHARE:
            yield (
                chunk,
                f"trivial_spread: chunk {numbers[chunk]} has the common exponent at "
                f"{repeated[chunk]:.0%} of arguments that belong to no large value; honest is "
                "below 1%",
            )


def _off_points_like_on_points(moduli: Ints, coefficients: Ints, comparison: Comparison) -> Floats:
    """Share of arguments off the verifier's points with the chunk's commonest exponent."""
    own = exponents(comparison.patterns)
    common = np.array([np.bincount(row).argmax() for row in own])
    steps = (moduli - 2) / (_SPREAD_POINTS - 1)
    points = (np.arange(_SPREAD_POINTS) * steps[:, None] + 1.0).astype(np.int64)
    points[:, -1] = moduli - 1
    # Chunk by chunk after one another, so that one sorted line holds them all.
    first = np.arange(len(moduli))[:, None] * P
    line = np.sort(comparison.indices % moduli[:, None], axis=1) + first
    places = np.searchsorted(line.ravel(), points + first)
    taken = line.ravel()[np.minimum(places, line.size - 1)] == points + first
    hits = (exponents(evaluate(coefficients, points)) == common[:, None]) & ~taken
    share: Floats = hits.sum(1) / np.maximum((~taken).sum(1), 1)
    return share


def _over_limits(comparison: Comparison, limits: Limits) -> list[str]:
    """Chunks whose figures exceed the limits. Comparisons are written so that NaN fails."""
    differing = comparison.exp_mismatches + comparison.sign_mismatches
    reasons = []
    for name, values, limit in (
        ("exp_mismatches", differing, limits.exp_mismatches),
        ("mant_err_mean", comparison.mant_err_mean, limits.mant_err_mean),
        ("mant_err_median", comparison.mant_err_median, limits.mant_err_median),
    ):
        for chunk in np.flatnonzero(~(values <= limit)):
            reasons.append(f"{name}: chunk {chunk} has {values[chunk]:.4g}, allowed is {limit}")
    return reasons


def _figures(
    coefficients: Ints, comparison: Comparison, places: Sequence[slice]
) -> Iterator[Figures]:
    """The worst and the mean of the chunks at each of the places."""
    overlaps, degree = comparison.overlaps(), degrees(coefficients)
    zeros = (coefficients == 0).sum(1)
    for place in places:
        means = comparison.mant_err_mean[place]
        mismatches = comparison.exp_mismatches[place]
        yield {
            "chunks": len(means),
            "exp_mismatches_max": int(mismatches.max()),
            "exp_mismatches_mean": float(mismatches.mean()),
            "overlap_min": int(overlaps[place].min()),
            "sign_mismatches_max": int(comparison.sign_mismatches[place].max()),
            "mant_err_mean_max": float(means.max()),
            "mant_err_mean_mean": float(means.mean()),
            "mant_err_median_max": float(comparison.mant_err_median[place].max()),
            "degree_min": int(degree[place].min()),
            "zero_coefficients_max": int(zeros[place].max()),
        }
