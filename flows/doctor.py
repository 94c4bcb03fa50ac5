"""What this machine has: the checks of `tracemill doctor`."""

import os
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

MIN_FREE_GB = 3.0


@dataclass(frozen=True)
class Check:
    """One thing that is there or not."""

    name: str
    ok: bool
    detail: str
    needed: bool
    """Whether `tracemill run --profile local` needs it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def checks() -> list[Check]:
    """All checks; each says what follows when it is not ok."""
    return [
        _python(),
        *(_package(name, True) for name in ("prefect", "torch", "transformers", "datasets")),
        _package("vllm", False),
        _machine(),
        _disk(),
        _gpu(),
        _sandbox(),
        *_models(),
        _verifiers(),
        _server(),
    ]


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), f"{found} (3.11 or later is needed)", True)


def _package(name: str, needed: bool) -> Check:
    try:
        return Check(name, True, version(name), needed)
    except PackageNotFoundError:
        what = "install the project again" if needed else "only GPU nodes need it: extra `gpu`"
        return Check(name, False, f"not installed; {what}", needed)


def _machine() -> Check:
    memory = psutil.virtual_memory().total / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Check("machine", memory >= 4, f"{cores} cores, {memory:.0f} GiB of memory", True)


def _disk() -> Check:
    free = shutil.disk_usage(".").free / 1e9
    return Check("disk", free >= MIN_FREE_GB, f"{free:.0f} GB free here", True)


def _gpu() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("gpu", False, "no CUDA device; models run on the CPU", False)
    return Check("gpu", True, torch.cuda.get_device_name(0), False)


def _sandbox() -> Check:
    from verifiers import sandbox

    works, why = sandbox.availability()
    return Check(
        "sandbox",
        works,
        why or "untrusted programs run isolated" if works else f"{why}; code answers stay unscored",
        False,
    )


def _models() -> list[Check]:
    from infra.models import registry

    found = []
    for model_id in registry.known():
        try:
            spec = registry.get(model_id)
            registry.materialise(model_id)
        except Exception as error:
            found.append(Check(model_id, False, str(error), True))
        else:
            millions = spec.parameters / 1e6
            found.append(Check(model_id, True, f"{millions:.1f}M parameters", True))
    return found


def _verifiers() -> Check:
    import verifiers

    problems = verifiers.self_test()
    detail = "; ".join(problems) or f"{len(verifiers.task_types())} task types"
    return Check("verifiers", not problems, detail, True)


def _server() -> Check:
    url = os.environ.get("PREFECT_API_URL", "")
    detail = (
        url
        or "none set: a temporary server is started for each run (`tracemill up` for a lasting one)"
    )
    return Check("prefect server", bool(url), detail, False)
