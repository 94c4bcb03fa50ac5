import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from toploc.errors import InvalidLogits, InvalidSettings
from toploc.filters import candidates
from toploc.sampling import (
    SamplingLimits,
    SamplingRule,
    _best_of,
    _best_on_cpu,
    _words,
    examine,
    examine_texts,
    gumbel_noise,
    judge_sampling,
    margins,
    sample,
)

RULES = [
    SamplingRule(1.0, 1.0, 0, 0.0),
    SamplingRule(0.8, 0.95, 0, 0.0),
    SamplingRule(1.0, 1.0, 20, 0.0),
    SamplingRule(1.3, 1.0, 0, 0.02),
    SamplingRule(0.6, 0.9, 40, 0.05),
    SamplingRule(3.0, 0.999, 0, 0.0),
    SamplingRule(1.0, 0.01, 0, 0.0),
    SamplingRule(1.0, 1.0, 1, 1.0),
    SamplingRule(0.0, 1.0, 0, 0.0),
]


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(12, 5003, generator=generator) * 3
    logits[:, 100:130] += 9
    seeds = torch.randint(0, 2**63 - 1, (12,), generator=generator)
    return logits, seeds, torch.arange(12)


def kept(logits: Tensor, rule: SamplingRule) -> Tensor:
    """The filters, plainly, in float64 and in vLLM's order."""
    scaled = logits.double() / rule.temperature
    mask = logits > -math.inf
    probabilities = scaled.softmax(1)
    mask &= probabilities >= rule.min_p * probabilities.amax(1, keepdim=True) * (1 - 1e-12)
    if rule.top_k:
        mask &= logits >= logits.topk(rule.top_k, 1).values[:, -1:]
    if rule.top_p < 1:
        probabilities = scaled.masked_fill(~mask, -math.inf).softmax(1)
        ordered, ids = torch.sort(probabilities, dim=1, descending=True, stable=True)
        before = ordered.cumsum(1) - ordered
        mask &= torch.zeros_like(mask).scatter(1, ids, before < rule.top_p)
    return mask


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_tokens_and_logprobs_equal_the_plain_computation(rows, rule):
    logits, seeds, positions = rows
    ids, logprobs = sample(logits, seeds, positions, rule)
    if rule.greedy:
        scores = scaled = logits.double()
    else:
        noise = gumbel_noise(seeds, positions, torch.arange(5003).expand(12, -1)).double()
        dropped = ~kept(logits, rule)
        scaled = (logits.double() / rule.temperature).masked_fill(dropped, -math.inf)
        scores = scaled + noise
    assert ids.dtype == torch.int64 and logprobs.dtype == torch.float32
    assert torch.equal(ids, scores.argmax(1))
    expected = scaled.log_softmax(1).gather(1, ids[:, None])[:, 0]
    assert torch.allclose(logprobs.double(), expected, atol=1e-5)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_row_does_not_depend_on_the_batch(rows, rule):
    logits, seeds, positions = rows
    ids, logprobs = sample(logits, seeds, positions, rule)
    for i in range(12):
        alone = sample(logits[i : i + 1], seeds[i : i + 1], positions[i : i + 1], rule)
        assert torch.equal(alone[0], ids[i : i + 1])
        assert torch.equal(alone[1], logprobs[i : i + 1])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    shuffled = sample(logits[order], seeds[order], positions[order], rule)
    assert torch.equal(shuffled[0], ids[order]) and torch.equal(shuffled[1], logprobs[order])


@pytest.mark.parametrize("rule", [r for r in RULES if r.top_p < 1.0], ids=str)
def test_flat_rows_among_peaked_ones_give_what_each_gives_alone(rule):
    """Peaked, wider, flat and tied rows keep from a few tokens to nearly all of them."""
    generator = torch.Generator().manual_seed(2)
    scales = torch.tensor([8.0, 1.5, 0.01, 8.0, 0.0, 1.5, 8.0, 0.01])
    logits = torch.randn(8, 5003, generator=generator) * scales[:, None]
    seeds, positions = torch.full((8,), 9), torch.arange(8) + 4
    drawn, logprobs = sample(logits, seeds, positions, rule)
    for tokens in (drawn, logits.topk(3).indices[:, 2], torch.arange(8)):
        found = examine(logits, tokens, 9, rule, start=4)
        for i in range(8):
            own = slice(i, i + 1)
            ids, values = sample(logits[own], seeds[own], positions[own], rule)
            assert torch.equal(ids, drawn[own]) and torch.equal(values, logprobs[own])
            alone = examine(logits[own], tokens[own], 9, rule, start=4 + i)
            assert torch.equal(alone.margins, found.margins[own])
            assert torch.equal(alone.distances, found.distances[own])
            assert torch.equal(alone.logprobs, found.logprobs[own])


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_texts_that_are_looked_at_together_give_what_each_gives_alone(rule, monkeypatch):
    monkeypatch.setattr("toploc.sampling._JOINT_VALUES", 12 * 5003)
    generator = torch.Generator().manual_seed(5)
    texts = []
    for number, length in enumerate((3, 0, 1, 7, 20, 2, 5)):
        logits = 4.0 * torch.randn(length, 5003, generator=generator)
        seed = 2**62 + number
        drawn, _ = sample(logits, torch.full((length,), seed), torch.arange(length), rule)
        drawn[1::3] = logits[1::3].argmax(1)
        drawn[2::5] = 5003  # outside of the vocabulary
        texts.append((logits, drawn, seed))
    for (logits, tokens, seed), found in zip(texts, examine_texts(texts, rule), strict=True):
        alone = examine(logits, tokens, seed, rule)
        assert torch.equal(alone.margins, found.margins)
        assert torch.equal(alone.distances, found.distances)
        assert torch.equal(alone.logprobs, found.logprobs)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    st.sampled_from([0.05, 0.7, 1.0]),
    st.sampled_from([0, 1, 5, 1000]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_sampled_tokens_have_no_margin(seed, temperature, top_p, top_k, min_p):
    """Logits full of ties and forbidden tokens."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(6, 300, generator=generator) * 3).round()
    logits[torch.rand(6, 300, generator=generator) < 0.3] = -math.inf
    logits[:, 7] = 0
    rule = SamplingRule(temperature, top_p, top_k, min_p)
    ids, logprobs = sample(logits, torch.full((6,), seed), torch.arange(6) + 3, rule)
    assert (logits.gather(1, ids[:, None]) > -math.inf).all()
    assert (logprobs <= 0).all() and torch.isfinite(logprobs).all()
    assert margins(logits, ids, seed, rule, start=3).tolist() == [0.0] * 6


def test_draws_follow_the_distribution():
    probabilities = torch.tensor([0.5, 0.2, 0.2, 0.06, 0.04])
    logits = probabilities.log().expand(20_000, -1).contiguous()
    ids, _ = sample(logits, torch.arange(20_000), torch.zeros(20_000), SamplingRule(1.0))
    counts = torch.bincount(ids, minlength=5).double()
    expected = probabilities.double() * 20_000
    assert float(((counts - expected) ** 2 / expected).sum()) < 20  # 4 degrees of freedom


PINNED = [[-1082698924, 1057389449], [1063821522, 1076978711]]


def test_noise_is_pinned():
    """These bits must never change: published traces are verified with them."""
    noise = gumbel_noise(
        torch.tensor([0, 2**62 + 12345]), torch.tensor([0, 99]), torch.tensor([[0, 1], [2, 49151]])
    )
    assert noise.view(torch.int32).tolist() == PINNED


def test_without_filters_margins_are_differences_of_scores(rows):
    logits, _, _ = rows
    rule = SamplingRule(0.7)
    seeds, positions = torch.full((12,), 77), torch.arange(12) + 5
    best, _ = sample(logits, seeds, positions, rule)
    second = logits.argmax(1)
    found = margins(logits, second, 77, rule, start=5)
    both = torch.stack([best, second], 1)
    scores = logits.double().gather(1, both) + 0.7 * gumbel_noise(seeds, positions, both).double()
    assert torch.allclose(found.double(), scores[:, 0] - scores[:, 1], atol=1e-5)
    assert found.max() > 1.0


def test_outside_of_the_candidates_margins_are_infinite(rows):
    logits, rule = rows[0], SamplingRule(0.7, 0.95)
    worst = logits.argmin(1)
    assert torch.isinf(margins(logits, worst, 77, rule, start=5)).all()
    assert torch.isinf(margins(logits, torch.full((12,), 5003), 77, rule)).all()
    assert torch.isinf(margins(logits, torch.full((12,), -1), 77, rule)).all()


@pytest.mark.parametrize(
    "rule",
    [SamplingRule(0.8, 0.95), SamplingRule(1.0, 1.0, 12), SamplingRule(1.2, 1.0, 0, 0.02),
     SamplingRule(0.9, 0.9, 30, 0.01)],
    ids=str,
)  # fmt: skip
def test_margins_are_as_small_as_what_moved_the_logits(rule):
    """The verifier may keep a token that the prover's cut dropped, and which leads by far."""
    generator = torch.Generator().manual_seed(5)
    logits, size = torch.randn(20_000, 16, generator=generator) * 2, 0.01
    moved = logits + size * (2 * torch.rand(logits.shape, generator=generator) - 1)
    seeds, positions = torch.full((len(logits),), 3), torch.arange(len(logits))
    theirs, _ = sample(moved, seeds, positions, rule)
    ours, _ = sample(logits, seeds, positions, rule)
    found = examine(logits, theirs, 3, rule)
    noise = gumbel_noise(seeds, positions, torch.stack([ours, theirs], 1))
    scores = logits.gather(1, torch.stack([ours, theirs], 1)) + rule.temperature * noise
    assert (scores[:, 0] - scores[:, 1]).max() > 10 * size
    assert 0.0 < found.distances.max() < 8 * size
    # And it is no smaller for what rounding does not explain.
    other = SamplingRule(rule.temperature, 0.6 * rule.top_p, rule.top_k // 2, rule.min_p * 8)
    theirs, _ = sample(logits, seeds, positions, other)
    changed = theirs != ours
    far = examine(logits, theirs, 3, rule).distances[changed] > 5 * size
    assert changed.sum() > 200 and far.float().mean() > 0.9


def test_greedy_margin_is_the_gap_to_the_largest_logit(rows):
    logits, _, _ = rows
    rule = SamplingRule(0.0)
    assert margins(logits, logits.argmax(1), 1, rule).tolist() == [0.0] * 12
    found = margins(logits, torch.full((12,), 3), 1, rule)
    assert torch.allclose(found, logits.amax(1) - logits[:, 3])


def test_a_token_at_the_edge_is_not_held_against_an_honest_prover():
    """The verifier's logits differ by rounding, and its cut falls one token beside the prover's."""
    logits = torch.tensor([[2.0, 1.0, 0.9999, -3.0]])
    rule = SamplingRule(1.0, 1.0, 2, 0.0)
    assert torch.isfinite(margins(logits, torch.tensor([2]), 5, rule)).all()
    assert torch.isinf(margins(logits, torch.tensor([3]), 5, rule)).all()
    probabilities = torch.tensor([[0.6, 0.30001, 0.09, 0.00999]])
    rule = SamplingRule(1.0, 0.9, 0, 0.0)
    assert torch.isfinite(margins(probabilities.log(), torch.tensor([2]), 5, rule)).all()
    assert torch.isinf(margins(probabilities.log(), torch.tensor([3]), 5, rule)).all()


def trace(rows: int = 100) -> tuple[Tensor, Tensor, SamplingRule]:
    """Logits as peaked as a language model's, and the tokens an honest prover samples."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(rows, 2000, generator=generator) * 2.5
    logits[:, :5] += 6
    rule = SamplingRule(0.8, 0.95, 0, 0.0)
    ids, _ = sample(logits, torch.full((rows,), 9), torch.arange(rows), rule)
    return logits, ids, rule


def test_honest_traces_are_accepted_with_a_wide_gap():
    logits, ids, rule = trace()
    noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(4))
    verdict = judge_sampling(margins(logits + 1e-5 * noise, ids, 9, rule))
    assert verdict.accepted
    assert verdict.figures["margin_mean"] < 0.05 * SamplingLimits().mean_margin
    assert verdict.figures["tokens"] == 100


def test_one_altered_token_of_a_hundred_is_noticed():
    logits, ids, rule = trace()
    missed = tried = 0
    for others in (logits.argmax(1), logits.topk(2, 1).indices[:, 1], torch.full((100,), 1999)):
        altered = margins(logits, others, 9, rule)
        for place in torch.nonzero(others != ids)[:, 0].tolist():
            found = torch.zeros(100)
            found[place] = altered[place]
            verdict = judge_sampling(found)
            assert verdict.accepted == (float(altered[place]) <= 0.05)
            missed += verdict.accepted
            tried += 1
    assert tried > 150
    assert missed < 0.1 * tried


@pytest.mark.parametrize(
    "change",
    [
        lambda x, r: (x, 10, r),
        lambda x, r: (x, 9, SamplingRule(r.temperature + 0.3, r.top_p)),
        lambda x, r: (x, 9, SamplingRule(r.temperature, 0.6)),
        lambda x, r: (x + 0.5 * torch.randn(x.shape), 9, r),
    ],
    ids=["other seed", "other temperature", "other top_p", "other model"],
)
def test_another_sampler_is_noticed(change):
    logits, ids, rule = trace()
    other, seed, claimed = change(logits, rule)
    assert not judge_sampling(margins(other, ids, seed, claimed)).accepted


@pytest.mark.parametrize(
    "values", [[], [[0.0]], [math.nan] * 3, [0.0, -0.1], [0.0] * 99 + [math.inf], [0.1] * 50]
)
def test_judgement_fails_closed(values):
    verdict = judge_sampling(torch.tensor(values))
    assert not verdict.accepted and verdict.reasons


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"temperature": math.nan}, {"top_p": 0.0}, {"top_p": 1.5},
     {"top_k": -1}, {"min_p": 2.0}, {"temperature": math.inf}, {"temperature": 1e7}],
)  # fmt: skip
def test_rules_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        SamplingRule(**{"temperature": 1.0, **wrong})


@pytest.mark.parametrize(
    "logits",
    [torch.full((2, 5), math.nan), torch.full((2, 5), math.inf), torch.full((2, 5), -math.inf),
     torch.zeros(2, 5).bfloat16(), torch.zeros(5), torch.zeros(2, 0), torch.zeros(3, 5)],
)  # fmt: skip
@pytest.mark.parametrize("rule", [RULES[0], RULES[1], RULES[2], RULES[-1]], ids=str)
def test_logits_that_cannot_be_sampled_from(logits, rule):
    with pytest.raises(InvalidLogits):
        sample(logits, torch.zeros(2, dtype=torch.int64), torch.zeros(2), rule)


def test_nothing_to_sample():
    empty = torch.empty(0, 5)
    none = torch.empty(0, dtype=torch.int64)
    ids, logprobs = sample(empty, none, none, RULES[0])
    assert len(ids) == len(logprobs) == len(margins(empty, none, 1, RULES[0])) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "milliseconds"), [(RULES[0], 25), (SamplingRule(0.6, 0.95, 20), 10)]
)
def test_speed_of_a_decoding_step(rule, milliseconds):
    """Processor time per row of 49152 tokens; 2.8 and 0.2 ms were seen on a busy machine."""
    logits = torch.randn(8, 49152, generator=torch.Generator().manual_seed(0)) * 3
    seeds, positions = torch.arange(8), torch.arange(8)
    best = math.inf
    for _ in range(4):
        start = time.process_time()
        sample(logits, seeds, positions, rule)
        best = min(best, time.process_time() - start)
    assert best / 8 * 1000 < milliseconds


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_cpu_and_gpu_agree_bit_for_bit(rows, rule):
    here = sample(*rows, rule)
    there = sample(*(t.cuda() for t in rows), rule)
    assert torch.equal(here[0], there[0].cpu()) and torch.equal(here[1], there[1].cpu())
    ids = torch.arange(5003).expand(12, -1)
    noise = gumbel_noise(rows[1].cuda(), rows[2].cuda(), ids.cuda())
    assert torch.equal(noise.cpu(), gumbel_noise(rows[1], rows[2], ids))


@pytest.mark.parametrize(
    "rule",
    [
        SamplingRule(1.0),
        SamplingRule(0.3, min_p=0.05),
        SamplingRule(2.0, top_k=50),
        SamplingRule(5.0, top_p=0.9),
    ],
)
def test_compiled_code_draws_what_torch_draws(rule):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(400, 301, generator=generator) * 3
    logits[:40] = logits[:40].round()  # equals
    logits[40:80, ::3] = -math.inf
    seeds = torch.randint(0, 2**62, (400,), generator=generator)
    positions = torch.arange(400)
    for rows, found in candidates(logits, rule):
        everything = slice(0, len(rows))
        words = _words(found, everything, 301, seeds[rows], positions[rows])
        for ours, theirs in zip(
            _best_on_cpu(found, everything, words, rule),
            _best_of(found, everything, words, rule),
            strict=True,
        ):
            assert torch.equal(ours, theirs)
