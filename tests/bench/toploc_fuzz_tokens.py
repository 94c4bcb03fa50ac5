"""Hostile tokens, settings and logits for the sampling check."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.bench.toploc_fuzz_signed import ENVIRONMENT, PROFILE
from toploc.errors import ToplocError
from toploc.sampling import SamplingRule, examine, judge_sampling, sample
from toploc.verdict import Examination

Draw = Callable[[st.SearchStrategy[Any]], Any]

_int64 = st.integers(-(2**63), 2**63 - 1)
_NOTHING = Examination(("nothing was compared",))


@st.composite
def logits(draw: Draw) -> Tensor:
    """Up to five rows: peaked, flat, full of ties, with forbidden tokens, or not finite."""
    vocabulary, rows = draw(st.sampled_from([1, 2, 5, 300, 3000])), draw(st.integers(0, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = random.standard_normal((rows, vocabulary))
    scales = st.sampled_from([0.0, 1e-4, 1.0, 8.0, 1e4])
    values *= np.array(draw(st.lists(scales, min_size=rows, max_size=rows)))[:, None]
    if draw(st.booleans()):
        values = values.round()
    values[random.random(values.shape) < draw(st.sampled_from([0.0, 0.0, 0.3, 1.0]))] = -np.inf
    if values.size and draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, values.size - 1))
        values.reshape(-1)[place] = draw(st.sampled_from([np.nan, np.inf, 3e38, -3e38]))
    return torch.from_numpy(values).to(torch.float32)


@st.composite
def rules(draw: Draw) -> dict[str, float]:
    """Settings of a sampling rule, good or bad."""
    share = st.sampled_from([0.0, 1.0, 0.9, 0.05]) | st.floats(0, 1) | st.floats()
    return {
        "temperature": draw(
            st.sampled_from([0.0, 1.0, 1e-5, 0.3, 30.0]) | st.floats(0, 1e6) | st.floats()
        ),
        "top_p": draw(st.sampled_from([1.0, 0.95]) | share),
        "top_k": draw(st.sampled_from([0, 0, 1, 5]) | _int64),
        "min_p": draw(st.sampled_from([0.0, 0.0, 0.1]) | share),
    }


def sampled(
    rows: Tensor, tokens: list[int], claimed: list[float], seed: int, start: int, rule: dict
) -> None:
    """Own tokens have no margin; what cannot be drawn is outside; nothing is NaN."""
    n, vocabulary = rows.shape
    with suppress(ToplocError):
        settings = SamplingRule(**rule)
        seeds, positions = torch.full((n,), seed), torch.arange(n) + start
        ids, logprobs = sample(rows, seeds, positions, settings)
        own = examine(rows, ids, seed, settings, start)
        assert (own.margins == 0).all() and torch.equal(own.logprobs, logprobs)
        assert (logprobs <= 0).all() and logprobs.isfinite().all()
        assert judge_sampling(own.margins).accepted == (n > 0)
        given = torch.tensor((tokens * n)[:n], dtype=torch.int64)
        found = examine(rows, given, seed, settings, start)
        assert (found.margins >= 0).all() and (found.distances >= 0).all()
        assert (found.logprobs <= 0).all()
        known = (given >= 0) & (given < vocabulary)
        drawable = known & (rows.gather(1, given.where(known, 0)[:, None])[:, 0] > -math.inf)
        assert found.margins[~drawable].isinf().all()
        if n:
            said = torch.tensor((claimed * n)[:n])
            verdict = PROFILE.judge_tokens(_NOTHING, found, said, [ENVIRONMENT])
            accepted = verdict.accepted or judge_sampling(found.margins).accepted
            assert not accepted or bool(drawable[-1]), "accepted what cannot be drawn"
            assert not verdict.accepted or not said.isnan().any()


TARGETS: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "tokens": (
        sampled,
        (
            logits(),
            st.lists(st.integers(-1, 6) | _int64, min_size=1, max_size=5),
            st.lists(st.floats(width=32), min_size=1, max_size=5),
            _int64,
            st.integers(0, 2**31),
            rules(),
        ),
    ),
}
