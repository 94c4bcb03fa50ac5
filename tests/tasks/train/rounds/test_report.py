"""Tables of a run, half way and with kinds that could not be measured."""

import pytest

from infra.storage import RunLayout, Store
from tasks.train.rounds.evaluation import Answer, evaluate
from tasks.train.rounds.layout import RlLayout
from tasks.train.rounds.report import evaluation_table, metrics_table, write_report
from tasks.train.trainer.metrics import Metrics

LAYOUT = RlLayout(RunLayout("r"))


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


def measured(store, version, score):
    """An evaluation of a kind that has scores and of one that has none."""
    answers = [
        Answer(kind, "a", greedy, value, 10, -1)
        for kind, value in (("sort", score), ("code", None))
        for greedy in (False, True)
    ]
    found = evaluate(version, 1.0, answers)
    store.write_json(LAYOUT.evaluation(version), found.to_json())
    return found


def test_a_kind_that_was_left_out_is_a_row_with_its_count(store):
    for version in (0, 5):
        measured(store, version, 1.0)
    rows = evaluation_table(store, LAYOUT).rows
    assert [(row[0], row[2], row[9]) for row in rows] == [
        ("0", "sort", "0"), ("0", "code", "2"), ("5", "sort", "0"), ("5", "code", "2"),
    ]  # fmt: skip
    assert rows[1][3:9] == ("0", "-", "-", "-", "-", "-")
    assert "code" in store.read_bytes(write_report(store, LAYOUT)).decode()


def test_metrics_of_trainer_and_rounds_are_one_table(store, tmp_path):
    root = tmp_path / LAYOUT.root
    trainer = root / "trainer"
    trainer.mkdir(parents=True)
    assert metrics_table(store, LAYOUT).rows == ()
    rounds = Metrics(root, 0)
    rounds.add(0, measured(store, 0, 0.5).figures(1))
    steps = Metrics(trainer, 0)
    for step in (1, 2):
        steps.add(step, {"loss": step / 8, "reward/all/mean": 0.5})
        rounds.add(step, {"time/wait_for_ckpt": 2.0})
    rounds.add(1, measured(store, 1, 1.0).figures(1))
    table = metrics_table(store, LAYOUT)
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [row["step"] for row in rows] == ["0", "1", "2"]
    assert [row["loss"] for row in rows] == ["-", "0.125", "0.25"]
    assert [row["time/wait_for_ckpt"] for row in rows] == ["-", "2", "2"]
    assert [row["eval/sort/avg@1"] for row in rows] == ["0", "1", "-"]
    # a run that goes on from version 1 has nothing of later ones, and keeps what was before
    Metrics(root, 1).add(2, {"time/wait_for_ckpt": 3.0})
    rows = metrics_table(store, LAYOUT).rows
    assert [row[table.head.index("time/wait_for_ckpt")] for row in rows] == ["-", "2", "3"]
