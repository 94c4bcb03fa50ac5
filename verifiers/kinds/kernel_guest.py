"""The process that runs a kernel: reads a job from stdin, writes outputs and time to stdout.

Imports torch and nothing of ours. The outputs of the other side never come here.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch


def namespace(source: str, name: str) -> dict[str, Any]:
    """The globals of a module of that source."""
    found: dict[str, Any] = {"__name__": name}
    exec(compile(source, f"{name}.py", "exec"), found)
    return found


def placed(values: Any, device: str) -> list[Any]:
    """Arguments with their tensors on the device."""
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in values]


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of an output, in order, as float32 on the CPU."""
    if isinstance(value, torch.Tensor):
        value = torch.view_as_real(value) if value.is_complex() else value
        return [value.detach().to("cpu", torch.float32).contiguous()]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    raise TypeError(f"forward gives a {type(value).__name__}, not tensors")


def mean_seconds(model: Any, inputs: list[Any], device: str, count: int) -> float:
    """Mean time of a call after some to warm up."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    for _ in range(3):
        model(*inputs)
    wait()
    started = time.perf_counter()
    for _ in range(count):
        model(*inputs)
    wait()
    return (time.perf_counter() - started) / count


def main() -> None:
    """One job."""
    job = json.loads(sys.stdin.read())
    result = os.dup(1)
    os.dup2(2, 1)  # prints of the code are no result
    device, seeds = job["device"], job["seeds"]
    reference = namespace(job["reference"], "reference")
    build = reference["Model"]
    if job["candidate"]:
        build = namespace(job["candidate"], "candidate")["ModelNew"]
    outputs: list[torch.Tensor] = []
    with torch.no_grad():
        torch.manual_seed(seeds[0])
        arguments = placed(reference["get_init_inputs"](), device)
        torch.manual_seed(seeds[0])  # the same weights on both sides
        model = build(*arguments).to(device)
        for seed in seeds:
            torch.manual_seed(seed)
            inputs = placed(reference["get_inputs"](), device)
            torch.manual_seed(seed)
            outputs += tensors(model(*inputs))
        seconds = mean_seconds(model, inputs, device, job["timed"])
    header = {"seconds": seconds, "shapes": [list(tensor.shape) for tensor in outputs]}
    with os.fdopen(result, "wb") as file:
        file.write(json.dumps(header).encode("ascii") + b"\n")
        for tensor in outputs:
            file.write(tensor.numpy().tobytes())


if __name__ == "__main__":
    main()
