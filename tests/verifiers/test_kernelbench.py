"""kernelbench: the rule, the comparison, and its process on the CPU; a GPU is not needed."""

import numpy as np
import pytest

from verifiers.errors import RowFault
from verifiers.kinds import kernel_process, kernelbench
from verifiers.kinds.kernel_process import Run
from verifiers.kinds.kernelbench import agree, compare, reward
from verifiers.registry import judge_row

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, 3)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return [8]
"""
RIGHT = REFERENCE.replace("class Model(", "class ModelNew(").replace(
    "torch.relu", "torch.clamp_min"
)
RIGHT = RIGHT.replace("self.linear(x))", "self.linear(x), 0)")
ROW = {"reference_arch": REFERENCE, "mean_runtime_torch": 0.1}


@pytest.mark.parametrize(
    ("correct", "seconds", "expected"),
    [(False, 0.001, 0), (True, 1.001, 0.1), (True, 1.0, 0.5), (True, 0.5, 0.75), (True, 1e-9, 1)],
)
def test_the_rule(correct, seconds, expected):
    assert reward(correct, seconds, 1.0) == pytest.approx(expected, abs=1e-6)


def made(*arrays):
    return Run(tuple(np.array(array, np.float32) for array in arrays), 1.0)


@pytest.mark.parametrize(
    ("got", "equal"),
    [
        (made([1, 2]), True),
        (made([1.005, 2.005]), True),
        (made([1, 2.1]), False),
        (made([1, float("nan")]), False),
        (made([1, float("inf")]), False),
        (made([[1, 2]]), False),
        (made(1), False),
        (made([1, 2], [1, 2]), False),
        (made(), False),
    ],
)
def test_the_comparison(got, equal):
    assert agree(made([1, 2]), got).equal is equal


def test_a_reference_without_numbers_is_the_fault_of_the_row():
    with pytest.raises(RowFault):
        agree(made([float("nan")]), made([float("nan")]))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[]\n", b'{"seconds": 1, "shapes": [[2]]}\n1234', b"[" * 9999 + b"\n",
        b'{"seconds": -1, "shapes": []}\n', b'{"seconds": NaN, "shapes": []}\n',
        b'{"seconds": 1, "shapes": [[-1, -1]]}\n1234', b'{"seconds": 1, "shapes": [[1e400]]}\n',
    ],
)  # fmt: skip
def test_a_forged_result_is_none(data):
    assert kernel_process._read(data) is None


def test_no_gpu_no_score(monkeypatch):
    monkeypatch.delenv(kernelbench.ALLOW, raising=False)
    got = judge_row("kernelbench", f"```python\n{RIGHT}\n```", ROW)
    assert (got.score, got.status) == (None, "verifier_error")
    assert "GPU" in got.detail
    assert judge_row("kernelbench", "no code", ROW).status == "no_answer"
    for wrong in ({}, ROW | {"mean_runtime_torch": 0}, ROW | {"mean_runtime_torch": "1"}):
        assert judge_row("kernelbench", "no code", wrong).status == "unverifiable"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_real_modules_on_the_cpu(sandbox_here, monkeypatch):
    monkeypatch.setattr(kernel_process, "SECONDS", 600.0)  # torch loads slowly on a busy machine
    right = compare(REFERENCE, RIGHT, "cpu")
    assert right.status == "ok" and right.score >= 0.1, right
    wrong = compare(REFERENCE, RIGHT.replace(", 0)", ", 0.5)"), "cpu")
    assert wrong.score == 0 and "differs" in wrong.detail
    for broken in ("class ModelNew: pass", "import os; os._exit(0)", "1/0", "print('{}')"):
        got = compare(REFERENCE, broken, "cpu")
        assert (got.score, got.status) == (0, "crash"), (broken, got)
    reach = RIGHT.replace(
        "import torch", "import torch, socket\nsocket.create_connection(('1.1.1.1', 1))"
    )
    assert compare(REFERENCE, reach, "cpu").score == 0
    with pytest.raises(RowFault, match="does not run"):
        compare("1/0", RIGHT, "cpu")
