"""Profiles: limits from honest traces, what they refuse, and the strict parsing."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from toploc import prove
from toploc.calibration import Honest, fit, lower_bound, tail_limit, upper_bound
from toploc.decision import Evidence, beyond_all, evidence
from toploc.errors import MalformedProfile
from toploc.profile import parse
from toploc.sampling import SamplingRule, examine, sample
from toploc.verdict import examine_proofs

FLOAT, HALF = "tests|cpu-1|float32|plain", "tests|cpu-1|bfloat16|plain"
RULE = SamplingRule(0.8, 0.95)
NOISE = {FLOAT: 0.0, HALF: 0.004}


class Model:
    """Hidden states as heavy-tailed as a model's, and logits linear in them."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.channels = torch.rand(128, generator=self.generator) ** 3 * 8 + 0.5
        self.head = torch.randn(128, 300, generator=self.generator) * 0.2

    def run(self, tokens: int, noise: float, seed: int):
        """A prover's proofs, tokens and log-probabilities; the verifier's states and logits."""
        states = torch.randn(tokens, 128, generator=self.generator) * self.channels
        theirs = states * (1 + noise * torch.randn(states.shape, generator=self.generator))
        rows = torch.arange(tokens)
        drawn = sample(theirs @ self.head, torch.full_like(rows, seed), rows, RULE)
        return prove(theirs.bfloat16()), *drawn, states.bfloat16(), states @ self.head


def judged(model: Model, tokens: int, noise: float, seed: int) -> Evidence:
    proofs, ids, logprobs, hidden, logits = model.run(tokens, noise, seed)
    return evidence(examine_proofs(hidden, proofs), examine(logits, ids, seed, RULE), logprobs)


@pytest.fixture(scope="module")
def honest() -> list[Honest]:
    model = Model()
    return [
        Honest(environment, "forward", f"trace {number}", judged(model, tokens, noise, number))
        for environment, noise in NOISE.items()
        for number in range(40)
        for tokens in ((3, 40) if number % 2 else (12, 70))
    ]


@pytest.fixture(scope="module")
def profile(honest):
    return fit("tests/model", "r1", honest, 1e-3)


def test_no_honest_trace_is_beyond_the_limits(profile, honest):
    assert [beyond_all(one.evidence, profile.limits) for one in honest] == [[]] * len(honest)
    model = Model()
    for number in range(100, 160):
        tokens = 2 + number % 90
        for noise in NOISE.values():
            assert not beyond_all(judged(model, tokens, noise, number), profile.limits)


def test_more_noise_than_any_honest_trace_had_is_refused(profile):
    model = Model()
    assert all(beyond_all(judged(model, 64, 0.02, seed), profile.limits) for seed in range(10))


def test_a_profile_says_what_it_stands_on(profile):
    assert profile.environments == (HALF, FLOAT)
    assert profile.modes == ("forward",)
    assert profile.traces == 80  # beginnings are no traces of their own
    assert profile.extrapolated
    assert profile.held_out.traces == 40
    assert profile.held_out.bound == upper_bound(profile.held_out.refused, 40)


def test_longer_traces_have_no_wider_limits(profile):
    for own in profile.limits.values():
        for limits in (*own.trace.values(), *own.chunk.values()):
            assert list(limits) == sorted(limits, reverse=True)


def test_too_few_traces_or_a_senseless_rate_make_no_profile(honest):
    with pytest.raises(MalformedProfile, match="at least 40"):
        fit("m", "r", [one for one in honest if one.trace < "trace 2"], 1e-3)
    for rate in (0.0, 0.5, math.nan):
        with pytest.raises(MalformedProfile, match="rate"):
            fit("m", "r", honest, rate)


def verdict(profile, noise: float, environments: list[str], change=lambda proofs: proofs):
    proofs, ids, logprobs, hidden, logits = Model().run(64, noise, 5)
    claims = examine(logits, ids, 5, RULE)
    return profile.judge(examine_proofs(hidden, change(proofs)), claims, logprobs, environments)


def test_inside_of_what_was_seen_a_refusal_is_hard(profile):
    assert verdict(profile, 0.004, [HALF, FLOAT]).accepted
    refused = verdict(profile, 0.05, [HALF, FLOAT])
    assert not refused.accepted and not refused.soft
    assert not any(reason.startswith("outside") for reason in refused.reasons)


def test_who_states_a_dtype_has_its_limits_and_no_wider_ones(profile):
    assert verdict(profile, 0.004, [HALF, FLOAT]).accepted
    refused = verdict(profile, 0.004, [FLOAT, FLOAT])
    assert not refused.accepted and not refused.soft and refused.rate == profile.rate
    assert all("(float32)" in reason for reason in refused.reasons)
    assert verdict(profile, 0.0, [FLOAT, FLOAT]).accepted
    assert set(profile.of("never seen")) == {"float32", "bfloat16"}


@pytest.mark.parametrize(
    "environments",
    [
        ["tests|cpu-2|float32|plain", FLOAT],
        [HALF, "tests|cpu-1|float16|plain"],
        ["other|cpu-1|float32|plain", FLOAT],
        ["tests|cpu-1|float32|flash", FLOAT],
        ["", FLOAT],
        ["tests|cpu-1|float32", FLOAT],
        ["tests|cpu-1|float32|plain|", FLOAT],
    ],
)
def test_outside_of_it_a_refusal_is_soft(profile, environments):
    refused = verdict(profile, 0.05, environments)
    assert not refused.accepted and refused.soft
    assert refused.reasons[0].startswith("outside_calibration: ")
    assert len(refused.reasons) > 1
    assert verdict(profile, 0.004, environments).accepted


def test_fields_that_were_seen_in_other_environments_do_not_make_one_that_was(profile):
    both = replace(profile, environments=("x|cpu-1|float32|a", "x|cpu-2|bfloat16|a"))
    assert both.covers("x|cpu-1|float32|a") and both.covers("x|cpu-2|bfloat16|a")
    assert not both.covers("x|cpu-1|bfloat16|a") and not both.covers("")


def test_traces_looked_at_together_are_judged_as_each_alone(profile):
    texts = []
    for seed, (length, noise) in enumerate([(64, 0.0), (1, 0.0), (33, 0.004), (256, 0.05), (9, 0)]):
        proofs, ids, logprobs, hidden, logits = Model().run(length, noise, seed)
        sides = (HALF if noise == 0.004 else FLOAT, FLOAT)
        found = examine_proofs(hidden, proofs if seed else b"")
        texts.append((found, examine(logits, ids, seed, RULE), logprobs, sides))
    verdicts = profile.judge_all(texts)
    assert verdicts == [profile.judge(*text) for text in texts]
    assert [verdict.accepted for verdict in verdicts] == [False, True, True, False, True]


def test_states_alone_are_judged_as_those_of_a_trace_are(profile):
    proofs, _, _, hidden, _ = Model().run(64, 0.05, 5)
    wrong = examine_proofs(hidden, proofs)
    refused = profile.judge_states(wrong, [HALF, FLOAT])
    assert not refused.accepted and not refused.soft
    assert profile.judge_states(wrong, ["tests|cpu-2|float32|plain", FLOAT]).soft
    for noise in NOISE.values():
        proofs, _, _, hidden, _ = Model().run(64, noise, 5)
        # Equal states are honest ones, whatever dtype the others of the pipeline compute in.
        assert profile.judge_states(examine_proofs(hidden, proofs), [HALF, FLOAT]).accepted
    null = profile.judge_states(examine_proofs(hidden, bytes(len(proofs))), [HALF, FLOAT])
    assert not null.accepted and not null.soft


def test_tokens_alone_are_judged_by_the_dtype_that_the_states_fit(profile):
    proofs, ids, logprobs, hidden, logits = Model().run(256, 0.004, 5)
    rounded = torch.zeros(256)
    rounded[3] = 0.9 * profile.limits["bfloat16"].token_margin
    assert rounded[3] > profile.limits["float32"].token_margin
    claims = replace(examine(logits, ids, 5, RULE), margins=rounded, distances=rounded)

    def judge(found, claims=claims):
        return profile.judge_tokens(found, claims, logprobs, [HALF, FLOAT])

    assert judge(examine_proofs(hidden, proofs)).accepted
    exact = judge(examine_proofs(hidden, prove(hidden)))
    assert not exact.accepted and not exact.soft  # who is that exact has no rounded margins
    assert judge(examine_proofs(hidden, prove(hidden.roll(7, 1)))).accepted  # the states' fault
    assert judge(examine_proofs(hidden, b"")).accepted
    greedy = examine(logits, logits.argmax(1), 5, RULE)
    assert not judge(examine_proofs(hidden, proofs), greedy).accepted


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda proofs: b"\xff\xd9\x41\x80" + bytes(254) + proofs[258:], "trivial_degree"),
        (lambda proofs: proofs[:258] * 2, "replayed"),
        (lambda proofs: bytes(258) + proofs[258:], "proof_modulus"),
        (lambda proofs: proofs[:258], "proof_length"),
    ],
    ids=["constant", "replayed", "null", "missing"],
)
def test_what_no_limit_forgives_is_hard_wherever_it_was_computed(profile, change, code):
    refused = verdict(profile, 0.0, ["never seen"], change)
    assert not refused.accepted and not refused.soft
    assert refused.reasons[0].startswith(code)


def test_the_tail_goes_beyond_what_was_seen_by_its_own_slope():
    values = np.random.default_rng(0).exponential(1.0, 2000)
    expected = math.log(1 / 1e-5)
    assert tail_limit(values, 1e-5) == pytest.approx(expected, rel=0.15)
    assert tail_limit(values, 0.01) == values.max()


def test_few_values_leave_the_tail_wider():
    """Whatever the number of values, one more of them is beyond at the rate asked for."""
    random = np.random.default_rng(1)
    rate, trials = 1e-3, 4000
    for count in (30, 100):
        beyond = [
            float(np.exp(-tail_limit(random.exponential(1.0, count), rate))) for _ in range(trials)
        ]
        assert 0.6 * rate < float(np.mean(beyond)) < 1.1 * rate, count


def test_a_tail_of_equal_values_or_of_one_is_that_value():
    assert tail_limit(np.full(30, 2.5), 1e-5) == 2.5
    assert tail_limit(np.array([1.0]), 1e-5) == 1.0


def test_bounds_are_the_exact_ones():
    assert upper_bound(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100), abs=1e-9)
    assert upper_bound(3, 50) == pytest.approx(0.14784, abs=1e-5)
    assert lower_bound(299, 299) == pytest.approx(0.05 ** (1 / 299), abs=1e-9)
    assert upper_bound(5, 5) == 1.0 and lower_bound(0, 9) == 0.0


def test_a_profile_reads_back_as_it_was(profile):
    assert parse(profile.to_json()) == profile


def damaged(profile, change) -> str:
    content = json.loads(profile.to_json())
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("rate"),
        lambda c: c.update(rate=0.0),
        lambda c: c.update(rate=1.0),
        lambda c: c.update(more=1),
        lambda c: c.update(format=1),
        lambda c: c.update(traces=-1),
        lambda c: c.update(traces=True),
        lambda c: c.update(rate="1e-3"),
        lambda c: c.update(rate=math.nan),
        lambda c: c.update(rate=math.inf),
        lambda c: c.update(rate=10**400),
        lambda c: c.update(extrapolated=1),
        lambda c: c.update(environments=[]),
        lambda c: c.update(environments=["a|b"]),
        lambda c: c.update(modes=[3]),
        lambda c: c["limits"]["float32"].update(token_margin=-0.1),
        lambda c: c["limits"]["float32"].update(token_margin=None),
        lambda c: c["limits"].pop("float32"),
        lambda c: c["limits"].update(float64=c["limits"]["float32"]),
        lambda c: c["limits"]["float32"].pop("least_error"),
        lambda c: c["limits"]["float32"]["trace"]["error_mean"].append(1.0),
        lambda c: c["limits"]["float32"]["trace"]["error_mean"].__setitem__(2, "1"),
        lambda c: c["limits"]["float32"]["chunk"].pop("chunk_error"),
        lambda c: c.update(limits=[]),
        lambda c: c.update(held_out={}),
    ],
)
def test_anything_else_is_no_profile(profile, change):
    with pytest.raises(MalformedProfile):
        parse(damaged(profile, change))


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", "{}", "[" * 100_000, '{"format": 2, "format": 2}']
)
def test_what_is_not_a_profile_at_all(text):
    with pytest.raises(MalformedProfile):
        parse(text)
