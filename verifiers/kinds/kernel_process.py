"""Runs a PyTorch module on a device, in a process of its own behind bubblewrap.

No network, no home, read-only files, one scratch directory; but processes (compilers) and the GPU's
devices, hence no system call filter: weaker than verifiers/sandbox.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verifiers import progress
from verifiers.errors import VerifierFault
from verifiers.sandbox.profile import bwrap_path

GUEST = Path(__file__).with_name("kernel_guest.py")
SECONDS = 170.0
"""Wall time of one run, compilation included; a pool hears of the process before and after."""
MAX_BYTES = 2 << 30
SCRATCH_BYTES = 4 << 30
TIMED = 20


@dataclass(frozen=True)
class Run:
    """What a module gave: one float32 array per output and trial, and the mean time of a call."""

    outputs: tuple[NDArray[np.float32], ...]
    seconds: float


@dataclass(frozen=True)
class Failed:
    """It gave nothing that can be compared."""

    why: str


def run(reference: str, candidate: str, device: str, seeds: Sequence[int]) -> Run | Failed:
    """Run `ModelNew` of the candidate, or without one `Model` of the reference."""
    job = {"reference": reference, "candidate": candidate, "device": device, "seeds": list(seeds)}
    progress.report(progress.ANSWER)
    try:
        ended = subprocess.run(
            _command(),
            input=json.dumps({**job, "timed": TIMED}).encode("ascii"),
            capture_output=True,
            timeout=SECONDS,
            env={},
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Failed(f"took more than {SECONDS:g} s")
    except OSError as error:
        raise VerifierFault(f"bubblewrap does not start: {error}") from error
    finally:
        progress.report(progress.ANSWER)
    words = ended.stderr[-2000:].decode("utf-8", "replace").strip().splitlines()
    return _read(ended.stdout) or Failed(words[-1][:300] if words else "no result")


def _read(data: bytes) -> Run | None:
    """The result of the guest: a line of JSON, then the arrays; None for anything else."""
    header, _, rest = data.partition(b"\n")
    try:
        about = json.loads(header)
        seconds, shapes = float(about["seconds"]), [tuple(map(int, s)) for s in about["shapes"]]
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return None
    if not 0 < seconds < SECONDS or any(side < 0 for shape in shapes for side in shape):
        return None
    sizes = [int(np.prod(shape, dtype=object)) if shape else 1 for shape in shapes]
    if sum(sizes) * 4 != len(rest) or len(rest) > MAX_BYTES:
        return None
    outputs, place = [], 0
    for shape, size in zip(shapes, sizes, strict=True):
        outputs.append(np.frombuffer(rest, "<f4", size, place).reshape(shape))
        place += size * 4
    return Run(tuple(outputs), seconds)


def _command() -> list[str]:
    args = [bwrap_path(), "--unshare-all", "--new-session", "--die-with-parent", "--clearenv"]
    args += ["--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"]
    for node in sorted(Path("/dev").glob("nvidia*")):
        args += ["--dev-bind", str(node), str(node)]
    shown = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives"]
    shown += ["/sys/devices", "/sys/module", sys.base_prefix, sys.prefix, str(GUEST)]
    for path in shown:
        args += ["--ro-bind-try", path, path]
    for key, value in {"PATH": "/usr/local/cuda/bin:/usr/bin:/bin", "HOME": "/tmp"}.items():
        args += ["--setenv", key, value]
    return [*args, "--chdir", "/tmp", sys.executable, "-P", "-s", "-B", str(GUEST)]
