import pytest

from flows.config import RunConfig
from flows.errors import BadConfig
from flows.profiles import load_config, load_profile, profile_names
from flows.rl_config import RlConfig


@pytest.mark.parametrize("name", profile_names())
def test_every_committed_profile_is_valid(name):
    config = load_profile(name)
    assert RunConfig.model_validate(config.dump()) == config


@pytest.mark.parametrize("name", profile_names(RlConfig))
def test_every_committed_profile_of_rounds_is_valid(name):
    config = load_config(RlConfig, name)
    assert RlConfig.model_validate(config.dump()) == config


def test_there_are_the_profiles_that_others_rely_on():
    assert {"local", "smoke", "rl-tasks"} <= set(profile_names())
    assert "rl-local" in profile_names(RlConfig)


def test_set_changes_one_value_of_any_type_and_depth():
    config = load_profile(
        "smoke",
        [
            "seed=99",
            "publish.name=other",
            'sft.select="hard"',
            "generate.annotators.1.sampling.temperature=0.5",
            "validate.batch_size=3",
        ],
    )
    assert config.seed == 99
    assert config.publish.name == "other"
    assert config.sft.select == "hard"
    assert config.generate.annotators[1].sampling.temperature == 0.5
    assert config.generate.annotators[0].sampling.temperature == 1.0
    assert config.validation.batch_size == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sed=1", "sed: unknown key; did you mean 'seed'?"),
        ("generate.teacher.sampels=1", "did you mean 'samples'?"),
        ("generate.teacher.sampling.temprature=1", "did you mean 'temperature'?"),
        ("collect.sources.0.generatr=1", "did you mean 'generator'?"),
        ("validate.exp_mismatch=1", "did you mean 'exp_mismatches'?"),
        ("seed=-1", "greater than or equal to 0 (received -1)"),
        ("generate.teacher.samples=many", '(received "many")'),
        ("annotate.min_scored=5", "no annotator draws more than 2 samples"),
        ("collect.sources.9.size=1", "is not one of its positions 0 to 4"),
        ("seed.deeper.key=1", "seed is a value, it has no keys below it"),
        ("seed", "not of the form a.b=value"),
    ],
)
def test_a_bad_override_names_key_value_and_next_step(override, message):
    with pytest.raises(BadConfig) as error:
        load_profile("smoke", [override])
    assert message in str(error.value)


def test_an_unknown_profile_names_the_nearest_one(tmp_path):
    with pytest.raises(BadConfig, match="did you mean 'local'"):
        load_profile("locall")
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = ")
    with pytest.raises(BadConfig, match="not valid TOML"):
        load_profile(str(broken))


def test_resources_do_not_change_the_content_hash():
    base = load_profile("smoke").content_hash()
    same = load_profile("smoke", ["provision.nodes=7", "storage.root=/x", "verify.batch_rows=3"])
    assert same.content_hash() == base
    assert load_profile("smoke", ["seed=8"]).content_hash() != base
