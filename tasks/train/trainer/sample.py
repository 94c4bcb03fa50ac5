"""One rollout as the trainer sees it, and the selection files that feed the trainer.

A selection file `selection/step_NNNNNN.parquet` holds everything that rollout step N trains on, in
order, so that a resumed or replayed step is the same step. It is written by our own side, after all
checks, in one atomic move: it is there whole or not at all. Beside the samples it holds what is
known of them before training (rewards, staleness), for the step's row of metrics.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from infra.storage.local import write_atomic
from tasks.train.trainer.errors import BadSample, BadSelection

SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("output_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("behaviour_logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("advantage", pa.float32(), nullable=False),
        pa.field("temperature", pa.float32(), nullable=False),
        pa.field("trainable", pa.bool_(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
    ]
)
FIGURES = b"figures"
ALL = "all"
"""Stands for all kinds where figures are given by kind."""


@dataclass(frozen=True)
class Sample:
    """One completion with what the objective needs.

    `behaviour_logprobs` are those of the output tokens under the policy that sampled them, at its
    temperature, float32 [len(output_ids)]. A sample that is not `trainable` (cut off, say) is put
    through the model but counts neither in the loss nor in its normaliser.
    """

    sample_id: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    behaviour_logprobs: NDArray[np.float32]
    advantage: float
    temperature: float = 1.0
    trainable: bool = True
    kind: str = ALL
    """Of task; some figures are given by kind."""

    def __post_init__(self) -> None:
        if not self.prompt_ids or not self.output_ids:
            raise BadSample(self.sample_id, "its prompt or its output has no token")
        if self.behaviour_logprobs.shape != (len(self.output_ids),):
            raise BadSample(
                self.sample_id,
                f"{len(self.output_ids)} output tokens, but behaviour log-probabilities of shape "
                f"{self.behaviour_logprobs.shape}",
            )
        if not np.isfinite(self.behaviour_logprobs).all() or not np.isfinite(self.advantage):
            raise BadSample(self.sample_id, "a log-probability or the advantage is not finite")
        if not 0.0 < self.temperature < float("inf"):
            raise BadSample(self.sample_id, f"temperature {self.temperature} is not above 0")

    @property
    def tokens(self) -> int:
        """Tokens that the model reads: the last output token predicts nothing."""
        return len(self.prompt_ids) + len(self.output_ids) - 1


def write_selection(
    path: Path, samples: Sequence[Sample], figures: Mapping[str, float] | None = None
) -> None:
    """Write a selection file; FileExistsError if it is there, since a step is chosen once."""
    rows = [
        {
            "sample_id": sample.sample_id,
            "prompt_ids": list(sample.prompt_ids),
            "output_ids": list(sample.output_ids),
            "behaviour_logprobs": sample.behaviour_logprobs,
            "advantage": sample.advantage,
            "temperature": sample.temperature,
            "trainable": sample.trainable,
            "kind": sample.kind,
        }
        for sample in samples
    ]
    buffer = io.BytesIO()
    schema = SCHEMA.with_metadata({FIGURES: json.dumps(dict(figures or {}))})
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), buffer, compression="zstd")
    write_atomic(path, buffer.getvalue(), overwrite=False)


def read_selection(path: Path) -> list[Sample]:
    """The samples of a selection file, in its order; `BadSelection` if it is not one."""
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise BadSelection(path, f"not readable ({error})") from error
    if not table.schema.equals(SCHEMA):
        raise BadSelection(path, f"its columns are {table.schema.names}")
    columns = [table.column(name) for name in SCHEMA.names]
    samples = [
        Sample(
            sample_id=sample_id.as_py(),
            prompt_ids=tuple(prompt.as_py()),
            output_ids=tuple(output.as_py()),
            behaviour_logprobs=logprobs.values.to_numpy(zero_copy_only=False),
            advantage=advantage.as_py(),
            temperature=temperature.as_py(),
            trainable=trainable.as_py(),
            kind=kind.as_py(),
        )
        for sample_id, prompt, output, logprobs, advantage, temperature, trainable, kind in zip(
            *columns, strict=True
        )
    ]
    if len({sample.sample_id for sample in samples}) != len(samples):
        raise BadSelection(path, "a sample_id is there twice, and no rollout is trained twice")
    return samples


def read_figures(path: Path) -> dict[str, float]:
    """What a selection file says of its samples as a whole."""
    figures: dict[str, float] = json.loads(pq.read_schema(path).metadata[FIGURES])
    return figures
