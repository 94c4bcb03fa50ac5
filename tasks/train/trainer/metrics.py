"""Metrics of a run: one row per rollout step in a parquet file, and scalars for tensorboard.

Invariant: the parquet file holds each step once, also after a step was trained again. The trainer
writes what it knows beside itself, the rounds what they know (evaluations, idle nodes) beside the
rounds: a file has one writer.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tensorboardX import SummaryWriter

from infra.storage.local import write_atomic

FILE = "metrics.parquet"


class Metrics:
    """Writer of a run's metrics from a step on; what later steps have left there goes away."""

    def __init__(self, directory: Path, done_steps: int) -> None:
        self._path = directory / FILE
        self._rows = pq.read_table(self._path) if self._path.exists() else _row(0, {}).slice(1)
        self._rows = self._rows.filter(pc.field("step") <= done_steps)
        self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=done_steps + 1)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add values to a step's row; they are on disk when the call returns."""
        steps = self._rows["step"].to_numpy()
        at, end = (int(np.searchsorted(steps, step, side)) for side in ("left", "right"))
        known = self._rows.slice(at, end - at).to_pylist()  # no row or one
        row = _row(step, {**(known[0] if known else {}), **values})
        parts = [self._rows.slice(0, at), row, self._rows.slice(end)]
        self._rows = pa.concat_tables(parts, promote_options="default").combine_chunks()
        buffer = io.BytesIO()
        # Numbers that hardly repeat: a dictionary would cost most of the time.
        pq.write_table(self._rows, buffer, use_dictionary=False)
        write_atomic(self._path, buffer.getvalue(), overwrite=True)
        for name, value in values.items():
            self._board.add_scalar(name, value, step)
        self._board.flush()


def _row(step: int, values: Mapping[str, float]) -> pa.Table:
    columns = {name: pa.array([value], pa.float64()) for name, value in values.items()}
    return pa.table(columns | {"step": pa.array([step], pa.int64())})
