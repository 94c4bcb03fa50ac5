import pytest

from flows.errors import DamagedRun, NoRun, OtherConfig
from flows.profiles import load_profile
from flows.runs import find_run, open_run
from infra.storage.errors import BadPath


def config(tmp_path, *overrides):
    return load_profile("smoke", [f"storage.root={tmp_path}", *overrides])


def test_a_run_is_opened_again_with_its_config(tmp_path):
    first = open_run(config(tmp_path), "r1")
    text = first.store.read_bytes(first.layout.run_toml)
    again = open_run(config(tmp_path), "r1")
    assert again.run_id == "r1"
    assert again.store.read_bytes(again.layout.run_toml) == text
    assert b"code_version" in text and b"seed = 7" in text


def test_another_config_is_refused_with_the_difference(tmp_path):
    open_run(config(tmp_path), "r1")
    with pytest.raises(OtherConfig) as error:
        open_run(config(tmp_path, "seed=8", "generate.teacher.sampling.top_p=0.5"), "r1")
    assert error.value.differences == (
        "seed: 7 -> 8",
        "generate.teacher.sampling.top_p: 0.95 -> 0.5",
    )
    assert "another --run-id" in str(error.value)


def test_a_run_is_found_with_the_config_it_was_started_with(tmp_path):
    open_run(config(tmp_path, "seed=3"), "r1")
    assert find_run(str(tmp_path), "r1").config.seed == 3
    with pytest.raises(NoRun, match="'nope' does not exist"):
        find_run(str(tmp_path), "nope")


@pytest.mark.parametrize("run_id", ["../x", "a/b", ".hidden", "x" * 65, "a b"])
def test_run_ids_cannot_leave_their_folder(tmp_path, run_id):
    with pytest.raises(BadPath):
        open_run(config(tmp_path), run_id)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"config = 3", b"run_id = "])
def test_a_damaged_record_is_named(tmp_path, text):
    run = open_run(config(tmp_path), "r1")
    run.store.write_bytes(run.layout.run_toml, text, overwrite=True)
    with pytest.raises(DamagedRun, match=r"run\.toml is damaged"):
        find_run(str(tmp_path), "r1")
