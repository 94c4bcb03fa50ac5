"""What a run of rounds keeps from its first start on."""

from flows.profiles import load_config
from flows.rl_config import RlConfig
from flows.rl_runs import dataset_of, open_rl
from infra.storage import Store


def test_a_run_stays_with_the_version_that_was_current_when_it_began(tmp_path):
    dataset = Store(str(tmp_path / "dataset"))
    dataset.write_json("_LATEST.json", {"version": "v1"})
    sets = [f"storage.root={tmp_path}", f"tasks.dataset={tmp_path / 'dataset'}"]
    config = load_config(RlConfig, "rl-local", sets)
    assert dataset_of(open_rl(config, "r")) == dataset.uri("v1")
    dataset.write_json("_LATEST.json", {"version": "v2"}, overwrite=True)
    assert dataset_of(open_rl(config, "r")) == dataset.uri("v1")
    assert dataset_of(open_rl(config, "s")) == dataset.uri("v2")
