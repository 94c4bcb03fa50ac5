"""Samples and selection files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.train.trainer import Sample, read_selection, selection_path, write_selection
from tasks.train.trainer.errors import BadSample, BadSelection
from tests.tasks.train.trainer.helpers import make_samples


def test_a_selection_comes_back_as_it_was(tmp_path) -> None:
    samples = make_samples(prompts=2, temperature=0.6)
    samples.append(Sample("cut", (1,), (2,), np.float32([-0.5]), -0.25, trainable=False))
    path = selection_path(tmp_path, 12)
    write_selection(path, samples)
    assert path.name == "step_000012.parquet"
    for ours, theirs in zip(read_selection(path), samples, strict=True):
        assert np.array_equal(ours.behaviour_logprobs, theirs.behaviour_logprobs)
        assert ours.behaviour_logprobs.dtype == np.float32
        for name in ("sample_id", "prompt_ids", "output_ids", "trainable"):
            assert getattr(ours, name) == getattr(theirs, name)
        for name in ("advantage", "temperature"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-6)


def test_a_step_is_chosen_once(tmp_path) -> None:
    path = selection_path(tmp_path, 1)
    write_selection(path, make_samples(seed=1))
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        write_selection(path, make_samples(seed=2))
    assert path.read_bytes() == before


def test_a_sample_twice_is_refused(tmp_path) -> None:
    path = selection_path(tmp_path, 1)
    write_selection(path, make_samples(prompts=1, per_prompt=1) * 2)
    with pytest.raises(BadSelection, match="no rollout is trained twice"):
        read_selection(path)


@pytest.mark.parametrize("data", [b"", b"PAR1 no", None])
def test_a_file_that_is_no_selection(tmp_path, data: bytes | None) -> None:
    path = tmp_path / "step_000001.parquet"
    if data is None:
        pq.write_table(pa.table({"sample_id": ["a"]}), path)
    else:
        path.write_bytes(data)
    with pytest.raises(BadSelection, match="step_000001"):
        read_selection(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"prompt_ids": ()}, "no token"),
        ({"output_ids": (), "behaviour_logprobs": np.float32([])}, "no token"),
        ({"behaviour_logprobs": np.float32([-1])}, "2 output tokens"),
        ({"behaviour_logprobs": np.float32([-1, np.nan])}, "not finite"),
        ({"advantage": float("inf")}, "not finite"),
        ({"temperature": 0.0}, "temperature 0.0"),
    ],
)
def test_what_no_sample_can_be(change: dict, problem: str) -> None:
    good = {
        "sample_id": "x",
        "prompt_ids": (1,),
        "output_ids": (2, 3),
        "behaviour_logprobs": np.float32([-1, -2]),
        "advantage": 1.0,
    }
    Sample(**good)
    with pytest.raises(BadSample, match=f"sample x.*{problem}"):
        Sample(**(good | change))
