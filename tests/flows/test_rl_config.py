"""RL configs that could not work are refused before anything is started."""

import tomllib

import pytest
import tomli_w

from flows.errors import BadConfig
from flows.profiles import load_config
from flows.rl_config import RlConfig

ELSEWHERE = "provision.service=https://pool.example:8480"


def load(*overrides: str, profile: str = "rl-local") -> RlConfig:
    return load_config(RlConfig, profile, list(overrides))


@pytest.mark.parametrize("profile", ["rl-local", "rl-lengths", "rl-arithmetic"])
def test_profiles_are_valid(profile):
    assert load(profile=profile).origin.here_only()


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ([ELSEWHERE], "served on loopback alone: set origin.host"),
        ([ELSEWHERE, "origin.port=8500", "origin.url=http://localhost:8500"], "loopback alone"),
        (["origin.host=0.0.0.0", "origin.port=8500"], "nodes need one of them: set url"),
        (["origin.url=https://weights.example"], "needs a fixed port"),
        (["storage.root=s3://bucket/runs"], "the trainer works on a file system"),
        (["provision.strangers=true"], "strangers need a pool's service"),
        (["sampling.max_tokens=4000"], "fit into trainer.micro_batch_tokens = 2048"),
        (["trainer.lora.save=adapter"], "nodes load whole models"),
        (["lengths.targets=[20, 40]", "lengths.reward=exact"], "40 tokens, and .*28 cuts every"),
        (["lengths.overlong=penalty", "lengths.overlong_cache=29"], "above sampling.max_tokens"),
        (["objective.correction=geometric", "sampling.top_p=0.9"], "set it to 'tis'"),
        (["rounds.steps=51"], r"total_steps is 200, .* is 204: .* set it to 204 or more"),
        (["objective.trained_samples=17"], "group_size = 16 is all that there is of a group"),
        (["sampling.temperature=0.0"], "nothing could be learned"),
    ],
)
def test_what_cannot_work_is_refused(overrides, problem):
    with pytest.raises(BadConfig, match=problem):
        load(*overrides)


def test_nodes_of_other_machines_reach_an_origin_with_an_address():
    config = load(
        ELSEWHERE, "provision.strangers=true", "origin.host=0.0.0.0", "origin.port=8500",
        "origin.url=https://weights.example:8500",
    )  # fmt: skip
    assert not config.origin.here_only()
    # A service on this machine has its nodes here too.
    assert load("provision.service=http://127.0.0.1:8480").origin.here_only()


def test_a_bound_can_be_taken_away_and_the_record_says_so():
    config = load("objective.delta=none", "tasks.difficulty.minimum=none")
    assert config.objective.delta is None
    assert config.tasks.difficulty.minimum is None
    record = tomli_w.dumps(config.dump())
    assert RlConfig.model_validate(tomllib.loads(record)) == config
    plain = RlConfig.model_validate(tomllib.loads(tomli_w.dumps(load().dump())))
    assert (plain.objective.delta, plain.tasks.difficulty.minimum) == (4.0, 0.0)
    with pytest.raises(BadConfig, match=r"objective\.delta.*number"):
        load("objective.delta=never")
