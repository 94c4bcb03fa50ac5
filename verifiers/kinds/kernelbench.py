"""`kernelbench`: a faster form of a PyTorch module, `{reference_arch, mean_runtime_torch}`.

The first fenced block defines `ModelNew`; it must give what the reference's `Model` gives on inputs
of seeds that nobody knows beforehand, and is timed on the GPU of this machine, as the reference is
(`mean_runtime_torch` was measured on another GPU and is only reported).

Only where a GPU is present and its owner allows it by TRACEMILL_KERNELBENCH=1: compilers and a
driver need processes and devices, so this code runs in a weaker sandbox than other programs. It is
compared outside, but it times itself: a program that forges its clock gets a better reward than it
earned, never one for wrong results.
"""

import importlib.util
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verifiers import extract
from verifiers.errors import RowFault, VerifierFault
from verifiers.kinds import kernel_process
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.kinds.kernel_process import Failed, Run
from verifiers.result import Outcome, crashed, judged, no_answer

ALLOW = "TRACEMILL_KERNELBENCH"
TOLERANCE = 1e-2
"""Relative and absolute, as in the public rule."""
TRIALS = 5
"""Different inputs."""
SLOWER = 0.1


@dataclass(frozen=True)
class Agreement:
    """Whether two runs gave the same, and where they did not."""

    equal: bool
    why: str = ""


def reward(correct: bool, seconds: float, base_seconds: float) -> float:
    """0 when wrong, 0.1 when slower than the reference; from 0.5 (as fast) towards 1 (no time).

    The published rule, 0.5 + 0.5 * min(1, base / t), was meant to reach from 0.5 to 1 by its own
    comment, but gives 1 to everything that is not slower (prime-rl, kernelbench/verify_kernel).
    """
    if not correct:
        return 0.0
    if seconds > base_seconds:
        return SLOWER
    return 1.0 - 0.5 * seconds / base_seconds


def agree(expected: Run, got: Run) -> Agreement:
    """Compare the outputs of all trials; RowFault when the reference itself gives no numbers."""
    if len(expected.outputs) != len(got.outputs):
        return Agreement(False, f"{len(got.outputs)} outputs, expected {len(expected.outputs)}")
    for place, (right, ours) in enumerate(zip(expected.outputs, got.outputs, strict=True)):
        if not np.isfinite(right).all():
            raise RowFault("reference_arch gives NaN or infinity for its own inputs")
        if right.shape != ours.shape:
            return Agreement(False, f"output {place}: shape {ours.shape}, expected {right.shape}")
        if not np.allclose(ours, right, rtol=TOLERANCE, atol=TOLERANCE):
            worst = float(np.max(np.abs(ours - right))) if ours.size else 0.0
            return Agreement(False, f"output {place}: differs by up to {worst:.4g}")
    return Agreement(True)


def missing() -> str:
    """Why no kernel can be judged here; empty when one can."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) or importlib.util.find_spec("torch") is None:
        return "kernelbench needs an NVIDIA GPU with torch; verify these rows on a machine with one"
    if os.environ.get(ALLOW) != "1":
        return (
            f"kernelbench runs model code with access to the GPU, outside of the strict sandbox; "
            f"where that is acceptable set {ALLOW}=1 in the worker's environment"
        )
    return ""


def _judge(answer: str, info: Info) -> Outcome:
    reference = text_of(info, "reference_arch")
    published = info.get("mean_runtime_torch")
    if isinstance(published, bool) or not isinstance(published, int | float) or published <= 0:
        raise RowFault(f"mean_runtime_torch must be a positive number, got {published!r:.40}")
    blocks = extract.fenced_blocks(answer)
    if not blocks:
        return no_answer("no fenced block")
    if reason := missing():
        raise VerifierFault(reason)
    return compare(reference, blocks[0][1], "cuda")


def compare(reference: str, candidate: str, device: str) -> Outcome:
    """Run both on a device and compare."""
    seeds = [secrets.randbelow(1 << 31) for _ in range(TRIALS)]
    expected = kernel_process.run(reference, "", device, seeds)
    if isinstance(expected, Failed):
        raise RowFault(f"reference_arch does not run: {expected.why}")
    got = kernel_process.run(reference, candidate, device, seeds)
    if isinstance(got, Failed):
        return crashed(got.why)
    found = agree(expected, got)
    speed = f"{got.seconds * 1e3:.4g} ms against {expected.seconds * 1e3:.4g} ms"
    return judged(reward(found.equal, got.seconds, expected.seconds), found.why or speed)


KIND = Kind(
    name="kernelbench",
    version=1,
    task_types=("kernelbench",),
    binary=False,
    judge=_judge,
    self_limiting=True,
    missing=missing,
    settings={"tolerance": TOLERANCE, "trials": TRIALS, "slower": SLOWER},
    self_tests=(
        ("no block", {"reference_arch": "class Model: ...", "mean_runtime_torch": 1.0}, 0.0),
        ("```python\n```", {"reference_arch": ""}, None),
    ),
)
