"""Rounds through every layer: nodes, checks, selection, trainer process, broadcast, evaluation."""

import socket
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from in_process import Ahead, Nodes

from infra.pool.ledger import entries
from infra.storage import RunLayout, Store, list_committed
from tasks.generate.config import SamplingConfig
from tasks.train.rounds.config import OriginConfig, RoundsConfig
from tasks.train.rounds.driver import Events, superseded
from tasks.train.rounds.evaluation import EvaluationConfig
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.report import read_evaluations, read_steps, write_report
from tasks.train.rounds.session import opened
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
    # The pool booked each upload once, and nobody else did.
    records = [entry.record for entry in entries(store)]
    uploads = [set(r.files.values()) for r in records if r.kind == "work" and r.files]
    committed = list_committed(store, f"{layout.root}/rollouts")
    # (It writes in its own time, so the last ones may not be there yet.)
    assert {uploads.count({*file.info["files"].values()}) for file in committed} | {0} == {0, 1}
    assert "tiny" not in {r.task_id for r in records}
    assert all(step["jobs"]["accepted"] > 0 < step["jobs"]["node_seconds"] for step in steps)
    page = store.read_bytes(write_report(store, layout)).decode()
    assert "Learning curve" in page and "<script" not in page


@pytest.mark.timeout(300)
def test_stale_rounds_lose_no_version_to_a_trainer_that_is_ahead(
    words, small, tmp_path, monkeypatch
):
    staleness, steps = 3, 5
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    monkeypatch.setattr("tasks.train.rounds.session.TrainerProcess", Ahead)
    monkeypatch.setattr(Ahead, "lead", staleness + 1)
    rounds = small(
        words,
        rounds=RoundsConfig(
            steps=steps, staleness=staleness, group_size=4, groups_per_job=6, groups_per_step=2
        ),
        sampling=SamplingConfig(temperature=1.0, max_tokens=16),
        evaluation=EvaluationConfig(every=2, tasks=1),
        origin=OriginConfig(port=port, url=f"http://localhost:{port}"),
    )
    store, layout = Store(str(tmp_path / "data")), RlLayout(RunLayout("tiny"))
    with Nodes(store) as pool, opened(rounds, store, layout, pool, Events()) as driver:
        driver.run()
    run_dir = store.local_path(f"{layout.trainer}/x").parent
    assert [found.version for found in read_evaluations(store, layout)] == [0, 2, 4, 5]
    lags = [int(lag) for step in read_steps(store, layout) for lag in step["staleness"]]
    assert 0 < max(lags) <= staleness
    trained = [
        s.sample_id for n in range(1, steps + 1) for s in read_selection(selection_path(run_dir, n))
    ]
    assert len(set(trained)) == len(trained) > 0
    # Strangers may generate; who judges is one of ours. All learn the origin's name from the job.
    assert all(job.stranger == (job.kind == "rollouts") for job in pool.asked)
    assert {job.payload["broadcast"]["url"] for job in pool.asked} == {f"http://localhost:{port}"}


def test_weights_that_are_not_published_yet_stay():
    assert superseded([5, 6, 7, 8], published=5) == []
    assert superseded([4, 5, 6, 7, 8], published=6) == [4]
    assert superseded([7, 8], published=8) == []
