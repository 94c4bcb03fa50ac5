"""Rounds through every layer: nodes, checks, selection, trainer process, broadcast, evaluation."""

import pytest

from tasks.train.rounds.report import read_evaluations, read_steps, write_report
from tasks.train.trainer import read_selection, selection_path, weights_path


@pytest.mark.timeout(900)  # seconds of work in five processes, which a busy machine stretches
def test_rounds_train_publish_and_measure(words, small, drive, tmp_path):
    with drive(small(words), tmp_path / "data") as (driver, store, layout):
        driver.run()
    run_dir = store.local_path(f"{layout.trainer}/x").parent
    assert weights_path(run_dir, 2).is_dir()
    evaluations = read_evaluations(store, layout)
    assert [found.version for found in evaluations] == [0, 2]
    assert evaluations[0].kinds["spell_backward"].tasks == 8
    steps = read_steps(store, layout)
    assert [step["staleness"] for step in steps] == [{"0": step["samples"]} for step in steps]
    trained = [s.sample_id for n in (1, 2) for s in read_selection(selection_path(run_dir, n))]
    assert len(set(trained)) == len(trained) > 0
    page = store.read_bytes(write_report(store, layout)).decode()
    assert "Learning curve" in page and "<script" not in page
