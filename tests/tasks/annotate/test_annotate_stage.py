"""The annotate stage on committed runs."""

import pytest

from data_contracts import annotate as contract
from infra.storage import read_table
from tasks.annotate import AnnotateConfig, annotate
from tasks.annotate.errors import NothingPlanned

CONFIG = AnnotateConfig(min_scored=2)


def test_every_planned_pair_gets_a_row(rated_run):
    manifest = annotate(rated_run.store, rated_run.layout, CONFIG, producer="test")
    table = read_table(rated_run.store, rated_run.layout.difficulty)
    assert table.schema.equals(contract.SCHEMA)
    assert table.num_rows == manifest.rows == len(rated_run.tasks) * 2
    assert set(table["model"].to_pylist()) == set(rated_run.ANNOTATORS)
    assert set(table["n_requested"].to_pylist()) == {4}
    assert manifest.info["counts"]["rows_in"] == table.num_rows
    assert sum(manifest.info["status"].values()) == table.num_rows
    assert manifest.info["missing_shards"] == []


def test_the_teacher_does_not_count(rated_run):
    annotate(rated_run.store, rated_run.layout, CONFIG, producer="test")
    table = read_table(rated_run.store, rated_run.layout.difficulty)
    assert rated_run.TEACHER not in table["model"].to_pylist()


@pytest.mark.parametrize("root", ["memory://annotate", None])
def test_two_runs_give_the_same_bytes(new_run, root):
    manifests = []
    for run_id in ("one", "two"):
        run = new_run(run_id, root).collect().stages("annotators", ("tracemill/nano-s",))
        manifests.append(annotate(run.store, run.layout, CONFIG, producer="test"))
    assert manifests[0].sha256 == manifests[1].sha256


def test_done_once_stays(rated_run):
    first = annotate(rated_run.store, rated_run.layout, CONFIG, producer="test")
    other = AnnotateConfig(min_scored=4)
    assert annotate(rated_run.store, rated_run.layout, other, producer="again") == first


def test_missing_rewards_are_named_and_stop_nothing(new_run):
    run = new_run().collect().plan("annotators", ("tracemill/nano-s",))
    run.generate("annotators").validate("annotators").verify("annotators", skip=1)
    manifest = annotate(run.store, run.layout, CONFIG, producer="test")
    assert manifest.info["missing_shards"] == [run.shards["annotators"][0][1]]
    rows = read_table(run.store, run.layout.difficulty).to_pylist()
    assert len(rows) == len(run.tasks)
    assert sum(row["n_scored"] == 0 and row["pass_rate"] is None for row in rows) >= 5


def test_without_a_plan_it_says_what_to_do(new_run):
    run = new_run().collect()
    with pytest.raises(NothingPlanned, match="Commit the annotators' plan"):
        annotate(run.store, run.layout, CONFIG, producer="test")
