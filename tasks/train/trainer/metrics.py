"""Metrics of a run: one row per rollout step in a parquet file, and scalars for tensorboard.

Invariant: the parquet file holds each step once, also after a step was trained again. The trainer
writes what it knows beside itself, the rounds what they know (evaluations, idle nodes) beside the
rounds: a file has one writer.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tensorboardX import SummaryWriter

from infra.storage.local import write_atomic

FILE = "metrics.parquet"


class Metrics:
    """Writer of a run's metrics from a step on; what later steps have left there goes away."""

    def __init__(self, directory: Path, done_steps: int) -> None:
        self._path = directory / FILE
        rows = pq.read_table(self._path).to_pylist() if self._path.exists() else []
        self._rows = {row["step"]: row for row in rows if row["step"] <= done_steps}
        self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=done_steps + 1)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add values to a step's row; they are on disk when the call returns."""
        self._rows.setdefault(step, {"step": step}).update(values)
        rows = [self._rows[step] for step in sorted(self._rows)]
        names = sorted({name for row in rows for name in row} - {"step"})
        fields = [pa.field("step", pa.int64()), *(pa.field(n, pa.float64()) for n in names)]
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), buffer)
        write_atomic(self._path, buffer.getvalue(), overwrite=True)
        for name, value in values.items():
            self._board.add_scalar(name, value, step)
        self._board.flush()
