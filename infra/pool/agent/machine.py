"""What this machine has, and how busy it is."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.pool.wire import ComputeSpecs, CpuSpecs, GpuSpecs, Metric, MetricKey

_QUERY = ("name", "memory.total", "memory.used", "utilization.gpu")
_TIMEOUT = 10


@dataclass(frozen=True)
class Card:
    """One GPU as nvidia-smi shows it; memory in MiB, utilization in percent."""

    name: str
    total: float
    used: float
    busy: float


def cards() -> list[Card]:
    """The GPUs; none where there is no nvidia-smi, or it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=_TIMEOUT, check=True,
        )  # fmt: skip
    except (subprocess.SubprocessError, OSError):
        return []
    return [card for line in done.stdout.splitlines() if (card := _card(line))]


def _card(line: str) -> Card | None:
    fields = [field.strip() for field in line.split(",")]
    try:
        name, total, used, busy = fields
        return Card(name, float(total), float(used), float(busy))
    except ValueError:
        return None


def specs(storage: Path) -> ComputeSpecs:
    """What the node claims; its first card stands for all, memory is that of the smallest."""
    found = cards()
    gpu = None
    if found:
        memory = int(min(card.total for card in found) * 1.048576)
        gpu = GpuSpecs(count=len(found), model=found[0].name[:200], memory_mb=memory)
    return ComputeSpecs(
        gpu=gpu,
        cpu=CpuSpecs(cores=len(os.sched_getaffinity(0))),
        ram_mb=psutil.virtual_memory().total >> 20,
        storage_gb=shutil.disk_usage(storage).free >> 30,
        storage_path=str(storage)[:200],
    )


def metrics(task_id: str) -> list[Metric]:
    """System figures under the original's labels: bytes and percent."""
    memory = psutil.virtual_memory()
    figures = {
        "system/cpu_percent": psutil.cpu_percent(),
        "system/memory_percent": memory.percent,
        "system/memory_usage": float(memory.used),
        "system/memory_total": float(memory.total),
    }
    for number, card in enumerate(cards()):
        name = f"system/gpu_{number}"
        figures[f"{name}_memory_used"] = card.used * 2**20
        figures[f"{name}_memory_total"] = card.total * 2**20
        figures[f"{name}_utilization"] = card.busy
    return [
        Metric(key=MetricKey(task_id=task_id, label=label), value=value)
        for label, value in figures.items()
    ]
