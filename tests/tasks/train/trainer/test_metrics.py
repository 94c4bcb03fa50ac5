"""The file of metrics: a step once, whatever was written before."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tasks.train.trainer.metrics import FILE, Metrics


def rows(directory: Path) -> list[dict[str, float]]:
    """What the file holds, without nulls."""
    listed = pq.read_table(directory / FILE).to_pylist()
    return [{name: v for name, v in row.items() if v is not None} for row in listed]


def test_values_come_together_in_a_step_s_row(tmp_path) -> None:
    metrics = Metrics(tmp_path, 0)
    metrics.add(0, {"eval": 0.5})
    metrics.add(2, {"loss": 2.0})
    metrics.add(1, {"loss": 1.0})  # an older step
    metrics.add(0, {"idle": 3.0})
    metrics.add(2, {"loss": 2.5, "nan": float("nan")})
    found = rows(tmp_path)
    assert found[:2] == [{"step": 0, "eval": 0.5, "idle": 3.0}, {"step": 1, "loss": 1.0}]
    assert found[2] == pytest.approx({"step": 2, "loss": 2.5, "nan": float("nan")}, nan_ok=True)


def test_steps_after_the_checkpoint_go_when_they_are_trained_again(tmp_path) -> None:
    first = Metrics(tmp_path, 0)
    for step in range(1, 5):
        first.add(step, {"loss": float(step), "before": 1.0})
    again = Metrics(tmp_path, 2)
    again.add(3, {"loss": 7.0, "after": 1.0})
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == [(1, 1.0), (2, 2.0), (3, 7.0)]
    assert rows(tmp_path)[2] == {"step": 3, "loss": 7.0, "after": 1.0}
