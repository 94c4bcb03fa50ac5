"""Traces judged as sequences: what the figures see, and what honest nodes are spared."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from toploc import prove
from toploc.decision import (
    CERTAIN,
    CHUNK_FIGURES,
    FAR,
    ROW_BANDS,
    TOKEN_BANDS,
    TRACE_FIGURES,
    Evidence,
    Limits,
    band,
    beyond,
    chunk_figures,
    evidence,
)
from toploc.sampling import Claims
from toploc.verdict import Examination, examine_proofs


def limits(trace: float = 1.0, chunk: float = 2.0, token: float = 0.3) -> Limits:
    return Limits(
        {name: (2 * trace,) + (trace,) * (len(TOKEN_BANDS) - 1) for name in TRACE_FIGURES},
        {name: (chunk,) * len(ROW_BANDS) for name in CHUNK_FIGURES},
        token,
        0.0,
    )


def clean(chunks: int, **changed) -> Evidence:
    tokens = 32 * chunks
    found = Evidence(
        np.full(chunks, 32), np.zeros(chunks), np.zeros(chunks), np.zeros(tokens), np.zeros(tokens)
    )
    return replace(found, **changed)


def codes(reasons: list[str]) -> list[str]:
    return [reason.partition(":")[0] for reason in reasons]


def of_chunks(prover: Tensor, verifier: Tensor) -> tuple[list[float], list[float]]:
    comparison = examine_proofs(verifier, prove(prover)).comparison
    assert comparison is not None
    errors, missing = chunk_figures(comparison.patterns, comparison.claimed)
    return errors.tolist(), missing.tolist()


def test_the_same_states_are_no_distance_apart(hidden):
    assert of_chunks(hidden, hidden) == ([0.0] * 3, [0.0] * 3)


def test_distance_goes_on_across_an_exponent_border(hidden):
    """1.9921875 and 2.0 are neighbours; by exponents and mantissas they have nothing in common."""
    prover, verifier = hidden.clone(), hidden.clone()
    below = torch.tensor(0x41FF, dtype=torch.int16).view(torch.bfloat16)
    above = torch.tensor(0x4200, dtype=torch.int16).view(torch.bfloat16)
    places = verifier[:32].abs().flatten().topk(8).indices
    prover.view(-1)[places] = below
    verifier.view(-1)[places] = above
    found = examine_proofs(verifier, prove(prover))
    compared = found.comparison
    assert compared is not None and compared.exp_mismatches[0] == 8
    errors, missing = chunk_figures(compared.patterns, compared.claimed)
    assert 0 < errors[0] < 8 * 2 / 100 and missing[0] == 0.0


def test_more_noise_is_more_distance(hidden):
    noise = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
    means = [
        float(np.mean(of_chunks((hidden.float() * (1 + size * noise)).bfloat16(), hidden)[0]))
        for size in (0.002, 0.01, 0.05)
    ]
    assert means[0] < 0.5 * means[1] < 0.5 * means[2]


def test_signs_and_foreign_values_are_missing(hidden):
    errors, missing = of_chunks(-hidden, hidden)
    assert missing == [1.0] * 3 and errors == [FAR] * 3
    errors, missing = of_chunks(hidden.roll(1, 1), hidden)
    assert min(missing) > 0.5


def test_ties_at_the_last_place_cost_an_honest_prover_nothing():
    """A hundred values above the cut, and thousands equal at it: each side takes other ones."""
    generator = torch.Generator().manual_seed(2)
    verifier = torch.full((32, 256), 4.0)
    places = torch.randperm(32 * 256, generator=generator)
    verifier.view(-1)[places[:100]] = torch.linspace(6.0, 20.0, 100)
    prover = verifier.clone()
    prover.view(-1)[places[200:400]] = 4.03125  # one unit in the last place above the others
    errors, missing = of_chunks(prover.bfloat16(), verifier.bfloat16())
    assert missing == [0.0] and errors[0] < 0.5


def test_a_chunk_of_nearly_equal_values_is_compared_as_a_whole():
    verifier = torch.full((32, 64), 2.0).bfloat16()
    verifier.view(-1)[:200] = 2.015625
    verifier.view(-1)[:128:3] = 2.03125
    prover = verifier.roll(700).contiguous()
    assert of_chunks(prover, verifier)[1][0] > 0.5


def test_bands():
    assert [band((1, 8, 32), count) for count in (1, 7, 8, 31, 32, 1000)] == [0, 0, 1, 1, 2, 2]


def test_each_figure_has_a_limit_that_counts():
    assert beyond(clean(4), limits()) == []
    for name, found in {
        "error_mean": clean(4, errors=np.array([0.0, 0.0, 2.0, 2.0]) * 1.01),
        "error_typical": clean(4, errors=np.array([0.0, 1.3, 1.3, 1.3])),
        "missing_mean": clean(4, missing=np.full(4, 1.1)),
        "chunk_error": clean(4, errors=np.array([0.0, 0.0, 0.0, 2.5])),
        "chunk_missing": clean(4, missing=np.array([0.0, 0.0, 0.0, 2.5])),
        "token_margin": clean(4, distances=np.eye(1, 128, 60)[0] * 0.4),
    }.items():
        assert name in codes(beyond(found, limits())), name
    tight = limits(trace=0.2)
    steady = clean(4, distances=np.full(128, 0.25))
    assert codes(beyond(steady, tight)) == ["margin_mean", "margin_rms"]
    few = clean(4, distances=np.where(np.arange(128) % 4, 0.0, 0.29))
    assert codes(beyond(few, limits(trace=0.1))) == ["margin_rms"]
    assert codes(beyond(clean(4, logprob_errors=np.full(128, 0.25)), tight)) == ["logprob_error"]


def test_short_traces_have_limits_of_their_own():
    few = Evidence(np.array([5]), np.array([1.5]), np.zeros(1), np.zeros(5), np.zeros(5))
    assert beyond(few, limits()) == []
    assert codes(beyond(clean(1, errors=np.array([1.5])), limits())) == [
        "error_mean", "error_typical",
    ]  # fmt: skip


def test_one_spoiled_chunk_of_a_long_trace_is_spared_but_not_two_and_not_garbage():
    errors = np.zeros(40)
    errors[7] = 3.0
    assert beyond(clean(40, errors=errors), limits()) == []
    errors[8] = 3.0
    assert codes(beyond(clean(40, errors=errors), limits())) == ["chunk_error"]
    errors[7:9] = 0.0, 5.0
    assert codes(beyond(clean(40, errors=errors), limits())) == ["chunk_error"]


def test_one_odd_token_of_a_long_trace_is_spared_unless_it_is_the_last():
    distances = np.zeros(1280)
    distances[3] = 5.0
    assert beyond(clean(40, distances=distances), limits()) == []
    assert codes(beyond(clean(40, distances=distances[::-1].copy()), limits())) == []
    distances[3], distances[-1] = 0.0, 5.0
    assert codes(beyond(clean(40, distances=distances), limits())) == ["token_margin"]


@pytest.mark.parametrize("name", ["errors", "missing", "distances", "logprob_errors"])
def test_what_is_not_a_number_is_beyond_every_limit(name):
    values = np.zeros(2 if name in ("errors", "missing") else 64)
    values[0] = math.nan
    assert beyond(clean(2, **{name: values}), limits())


def test_evidence_keeps_infinite_figures_as_numbers(hidden):
    found = examine_proofs(hidden, prove(hidden))
    claims = Claims(torch.full((80,), math.inf), torch.full((80,), math.inf), torch.zeros(80))
    claimed = torch.zeros(80)
    claimed[1], claimed[2] = -math.inf, math.nan
    seen = evidence(found, claims, claimed)
    assert seen.rows.tolist() == [32, 32, 16]
    assert seen.distances.tolist() == [CERTAIN] * 80
    assert seen.logprob_errors[:3].tolist() == [0.0, CERTAIN, CERTAIN]
    assert seen.figures.trace["error_mean"] == 0.0
    with pytest.raises(ValueError, match="null proof"):
        evidence(Examination(("proof_modulus: the null proof",)), claims, claimed)
