"""What a computation ran on, as one short line that a calibration profile can compare.

Two lines with the same fields are expected to differ by no more than what honest runs of that
kind were seen to differ. A line is a claim: a node writes its own.
"""

import functools
import platform
from pathlib import Path

import torch

MAX_LENGTH = 64


def environment(engine: str, dtype: str, attention: str) -> str:
    """`engine|processor|dtype|attention`, at most 64 characters."""
    kernels = torch.backends.cpu.get_cpu_capability().lower()
    return f"{engine}|{_processor()[:24]}+{kernels[:10]}|{dtype}|{attention}"[:MAX_LENGTH]


@functools.cache
def _processor() -> str:
    """Vendor, family and model of the CPU, which decide its kernels; clock rates do not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = {key.strip(): value.strip() for key, _, value in (ln.partition(":") for ln in lines)}
    parts = [found.get(key, "") for key in ("vendor_id", "cpu family", "model")]
    known = "-".join(part for part in parts if part)
    return (known or platform.machine() or "unknown").replace("|", "-")
