"""Traces of a real model against the checks: the honest pass, every kind of forgery is refused."""

import copy
import json
from types import SimpleNamespace

import pytest

from data_contracts.ids import trace_seed
from infra.inference import load_engine
from infra.inference.protocol import Request, SamplingParams
from infra.models import profiles, registry
from infra.models.errors import ProfileUnreadable
from tasks.generate.work import ProofSink
from tasks.validate.config import ValidateConfig
from tasks.validate.work import judge

MODEL = "tracemill/nano-s"
SAMPLING = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 80, "stop": [],
}  # fmt: skip
WORDS = ("lamp", "stone", "river", "cat", "window", "paper", "green", "mill")
CONFIG = ValidateConfig()


@pytest.fixture(scope="module")
def engine():
    loaded = load_engine(MODEL)
    yield loaded
    loaded.close()


def generated(engine, sampling=SAMPLING, seed_offset=0) -> list[dict]:
    params = SamplingParams(**sampling | {"stop": tuple(sampling["stop"])})
    requests, sink = [], ProofSink()
    for number, word in enumerate(WORDS):
        question = f"Spell this word backward (example: sun -> nus): {word}"
        ids, _ = engine.render([{"role": "user", "content": question}])
        trace_id = f"{number:032x}"
        requests.append(Request(trace_id, tuple(ids), trace_seed(trace_id) + seed_offset))
    completions = engine.generate(requests, params, sink)
    return [
        {
            "trace_id": request.trace_id,
            "model_revision": engine.revision,
            "seed": trace_seed(request.trace_id),
            "sampling": json.dumps(sampling),
            "prompt_ids": list(request.prompt_ids),
            "output_ids": completion.output_ids,
            "logprobs": completion.logprobs,
            "status": completion.status,
            "finish_reason": completion.finish_reason,
            "proofs": sink.of(request.trace_id),
            "engine": engine.environment,
        }
        for request, completion in zip(requests, completions, strict=True)
    ]


@pytest.fixture(scope="module")
def honest(engine) -> list[dict]:
    return generated(engine)


@pytest.fixture
def trace(honest) -> dict:
    return copy.deepcopy(max(honest, key=lambda row: len(row["output_ids"])))


def verdict(engine, *traces):
    found = judge(list(traces), engine, CONFIG)
    return [found[trace["trace_id"]] for trace in traces]


def test_honest_traces_are_accepted_in_any_company(engine, honest):
    together = verdict(engine, *honest)
    assert [one.verdict for one in together] == ["accepted"] * len(honest)
    for trace, one in zip(honest, together, strict=True):
        assert one.reasons == []
        assert one.figures["limits"] == "calibrated"
        assert one.figures["margin_mean"] < 1e-4
        alone = verdict(engine, trace)[0]
        assert (alone.verdict, alone.reasons) == (one.verdict, one.reasons)


@pytest.mark.parametrize(
    "sampling",
    [
        SAMPLING | {"temperature": 0.0},
        SAMPLING | {"temperature": 0.6, "top_p": 0.95},
        SAMPLING | {"top_k": 5, "min_p": 0.02},
        SAMPLING | {"max_tokens": 3},
        SAMPLING | {"stop": ["</think>"]},
    ],
    ids=["greedy", "top-p", "top-k and min-p", "cut by length", "stop string"],
)
def test_honest_traces_of_other_settings_are_accepted(engine, sampling):
    traces = generated(engine, sampling)
    assert [one.verdict for one in verdict(engine, *traces)] == ["accepted"] * len(traces)


def other(token: int) -> int:
    return token % 200 + 1


def change_token(place):
    def forge(trace, honest):
        trace["output_ids"][place] = other(trace["output_ids"][place])

    return forge


def foreign_proofs(trace, honest):
    others = [row for row in honest if row["trace_id"] != trace["trace_id"]]
    pool = b"".join(row["proofs"] for row in others)
    trace["proofs"] = pool[: len(trace["proofs"])]


def cut(trace, honest):
    for column in ("output_ids", "logprobs"):
        trace[column] = trace[column][:6]
    trace["proofs"] = trace["proofs"][:258]


def forge_values(**values):
    def forge(trace, honest):
        trace.update(values)

    return forge


FORGERIES = {
    "a token in the middle": change_token(5),
    "the token before the last": change_token(-2),
    "the first token": change_token(0),
    "no proofs": forge_values(proofs=b""),
    "half a proof": forge_values(proofs=b"\xff\xd9" + b"\0" * 100),
    "null proof": forge_values(proofs=b"\0" * 258),
    "constant proof": forge_values(proofs=b"\xff\xd9\x40\x80" + b"\0" * 254),
    "another trace's proofs": foreign_proofs,
    "cut short": cut,
    "another seed": forge_values(seed=12345),
    "other weights": forge_values(model_revision="0" * 32),
    "claims an engine fault": forge_values(status="engine_error"),
    "claims a prompt too long": forge_values(status="prompt_too_long"),
    "claims to have hit the limit": forge_values(finish_reason="length"),
    "an end that is none of ours": forge_values(finish_reason="error"),
    "one proof too many": lambda trace, honest: trace.update(proofs=trace["proofs"] * 2),
    "goes on after its end": lambda trace, honest: trace.update(
        output_ids=[*trace["output_ids"], 5], logprobs=[*trace["logprobs"], -1.0]
    ),
    "a token outside the vocabulary": lambda trace, honest: trace["output_ids"].__setitem__(
        3, 10**6
    ),
    "flattering log-probabilities": lambda trace, honest: trace.update(
        logprobs=[0.0] * len(trace["logprobs"])
    ),
    "other text in the prompt": lambda trace, honest: trace["prompt_ids"].__setitem__(
        slice(10, 20), trace["prompt_ids"][20:30]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_rejected_and_harms_no_other(engine, honest, trace, name):
    FORGERIES[name](trace, honest)
    beside = [row for row in honest if row["trace_id"] != trace["trace_id"]][:2]
    forged, *others = verdict(engine, trace, *beside)
    assert forged.verdict == "rejected", (name, forged.figures)
    assert forged.reasons
    assert [one.verdict for one in others] == ["accepted"] * len(others)


def test_a_refusal_is_soft_only_where_nobody_has_calibrated(engine, trace):
    elsewhere = "transformers|SomeVendor-1-1+avx9|float32|sdpa_grouped"
    assert verdict(engine, trace | {"engine": elsewhere})[0].verdict == "accepted"
    change_token(5)(trace, [])
    hard, soft = verdict(engine, trace, trace | {"engine": elsewhere, "trace_id": "e" * 32})
    assert hard.verdict == soft.verdict == "rejected"
    assert "soft" not in hard.figures and soft.figures["soft"] is True
    assert soft.reasons[0].startswith("outside_calibration: ")
    # The dtype that is stated where it was seen has its own limits, which are narrower.
    codes = {reason.partition(":")[0] for reason in hard.reasons}
    assert {reason.partition(":")[0] for reason in soft.reasons[1:]} <= codes
    assert all("(float32)" in reason for reason in hard.reasons)
    ended = trace | {"engine": elsewhere, "finish_reason": "error"}
    assert "soft" not in verdict(engine, ended)[0].figures


def test_a_model_without_a_profile_is_judged_by_fixed_limits(engine, honest, trace):
    config = ValidateConfig(calibrated=False)
    found = judge(honest, engine, config)
    assert {one.verdict for one in found.values()} == {"accepted"}
    assert {one.figures["limits"] for one in found.values()} == {"fixed"}
    trace["output_ids"][-1] = next(iter(engine.eos_ids))
    trace["finish_reason"] = "stop"
    trace["output_ids"][-2] = other(trace["output_ids"][-2])
    (one,) = judge([trace], engine, config).values()
    assert one.verdict == "rejected" and "soft" not in one.figures


@pytest.mark.parametrize(
    "changed", [{"temperature": 1e7}, {"temperature": "1.0"}, {"top_p": 2.0}, {"max_tokens": "9"}]
)
def test_sampling_that_nobody_can_do_is_the_nodes_fault(engine, trace, changed):
    sampling = json.dumps(json.loads(trace["sampling"]) | changed)
    (found,) = verdict(engine, trace | {"sampling": sampling})
    assert (found.verdict, found.reasons) == ("rejected", ["bad_sampling"])


def test_our_own_fault_is_a_crash_and_never_accepted(engine, honest, trace):
    def fails(items):
        raise RuntimeError("out of memory")

    broken = SimpleNamespace(
        prefill=fails,
        revision=engine.revision,
        context_length=engine.context_length,
        eos_ids=engine.eos_ids,
        environment=engine.environment,
        ended=engine.ended,
    )
    (one,) = judge([trace], broken, CONFIG).values()
    assert one.verdict == "crashed"
    assert one.reasons == ["validator:RuntimeError"]


def test_states_of_ours_that_are_not_finite_are_a_crash_and_nobodys_fault(
    engine, trace, monkeypatch
):
    computed = engine.prefill

    def overflows(items):
        return [(hidden * float("inf"), logits) for hidden, logits in computed(items)]

    monkeypatch.setattr(engine, "prefill", overflows)
    one = verdict(engine, trace)[0]
    assert (one.verdict, one.reasons) == ("crashed", ["validator:UnprovableActivations"])


def test_greedy_output_under_a_claim_of_temperature_one_is_mostly_rejected(engine):
    """A short answer that the seed draws too cannot be told apart, nor need it be."""
    traces = generated(engine, SAMPLING | {"temperature": 0.0})
    for row in traces:
        row["sampling"] = json.dumps(SAMPLING)
    refused = [one for one in verdict(engine, *traces) if one.verdict == "rejected"]
    assert len(refused) > len(traces) / 2


def test_an_unreadable_profile_stops_the_judging_of_its_own_model_alone(
    engine, honest, tmp_path, monkeypatch
):
    own = tmp_path / profiles.file_name(MODEL, engine.revision)
    own.write_text("{}")
    monkeypatch.setattr(profiles, "own_profiles", lambda: tmp_path)
    profiles.find_profile.cache_clear()
    try:
        with pytest.raises(ProfileUnreadable, match=own.name):
            judge(honest, engine, CONFIG)
        other = registry.revision("tracemill/nano-m")
        found = judge(honest, engine, CONFIG, calibration=other)
        assert {one.figures["limits"] for one in found.values()} == {"calibrated"}
        fixed = judge(honest, engine, CONFIG.model_copy(update={"calibrated": False}))
        assert {one.verdict for one in fixed.values()} == {"accepted"}
    finally:
        profiles.find_profile.cache_clear()
