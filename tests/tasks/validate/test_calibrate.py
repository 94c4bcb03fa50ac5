"""Calibration runs a model in all honest ways; its profile then accepts such runs."""

from tasks.validate.calibrate import WAYS, Plan, calibrate


def test_honest_runs_make_a_profile() -> None:
    told: list[str] = []
    plan = Plan(traces=40, other_traces=8, max_tokens=8)
    profile = calibrate("tracemill/nano-s", plan, told.append)
    assert profile.model == "tracemill/nano-s"
    seen = [environment.split("|") for environment in profile.environments]
    parts = [set(column) for column in zip(*seen, strict=True)]
    assert parts[0] == {"transformers"}
    assert parts[2:] == [{"float32", "bfloat16"}, {"sdpa_grouped", "sdpa", "eager"}]
    assert {way.mode for way in WAYS} <= set(profile.modes)
    assert profile.traces == 40 * 2 + 8
    assert profile.held_out.refused <= 2
    assert 0 < profile.limits["bfloat16"].trace["error_mean"][1] < 20
    assert any("bfloat16" in line for line in told)
