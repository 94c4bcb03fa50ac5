"""What a run of rounds keeps from its first start on, and what may change."""

import pytest

from flows.errors import OtherConfig
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


def test_resources_may_change_and_what_is_trained_may_not(tmp_path):
    def start(*sets: str):
        return open_rl(load_config(RlConfig, "rl-local", [f"storage.root={tmp_path}", *sets]), "r")

    start()
    start("provision.nodes=5", "machine.threads=2", "origin.port=8500", "trainer.keep=3")
    with pytest.raises(OtherConfig, match="learning_rate"):
        start("trainer.learning_rate=1e-3")
    with pytest.raises(OtherConfig, match="staleness"):
        start("rounds.staleness=3", "provision.nodes=5")
