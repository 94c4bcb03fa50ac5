"""Checkpoints: safetensors for tensors, JSON for the rest, never a pickle.

A rank writes the rows that it holds of each trained parameter and of AdamW's two moments, and says
which rows they are. So a checkpoint can be read by another number of ranks. Nothing else is needed
to go on bit by bit: the order of samples comes from the seed and the step, and no layer draws
random numbers.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tasks.train.trainer.errors import BadCheckpoint
from tasks.train.trainer.files import whole_directory
from tasks.train.trainer.ranks import Ranks, local, local_rows

STATE = "state.json"
MOMENTS = ("exp_avg", "exp_avg_sq")


def write_checkpoint(
    directory: Path,
    ranks: Ranks,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
) -> None:
    """Write trained parameters, optimizer and `state` (plain values), whole or not at all."""
    with whole_directory(directory, ranks) as temp:
        tensors: dict[str, Tensor] = {}
        rows: dict[str, tuple[int, int]] = {}
        for name, tensor in _tensors(module, optimizer):
            tensors[name] = local(tensor).detach().cpu().contiguous()
            rows[name] = local_rows(tensor)
        save_file(tensors, temp / f"rank_{ranks.rank:05d}.safetensors", {"rows": json.dumps(rows)})
        if ranks.first:
            text = json.dumps({**state, "ranks": ranks.world}, indent=2, sort_keys=True)
            (temp / STATE).write_text(text + "\n")


def read_state(directory: Path) -> dict[str, Any]:
    """The plain values of a checkpoint."""
    try:
        state = json.loads((directory / STATE).read_text())
    except (OSError, ValueError) as error:
        raise BadCheckpoint(directory, f"{STATE} is not readable ({error})") from error
    return dict(state)


@torch.no_grad()
def read_checkpoint(
    directory: Path, module: nn.Module, optimizer: torch.optim.Optimizer, optimizer_steps: int
) -> None:
    """Fill trained parameters and optimizer in place."""
    if optimizer_steps:
        for parameter in _trained(module).values():
            optimizer.state[parameter] = {
                "step": torch.tensor(float(optimizer_steps), device=local(parameter).device),
                **{moment: torch.zeros_like(parameter) for moment in MOMENTS},
            }
    try:
        files: list[Any] = [
            safe_open(path, framework="pt") for path in sorted(directory.glob("rank_*.safetensors"))
        ]
        held = [json.loads(file.metadata()["rows"]) for file in files]
        for name, tensor in _tensors(module, optimizer):
            first, end = local_rows(tensor)
            part, filled = local(tensor), 0
            for file, rows in zip(files, held, strict=True):
                low, high = rows[name]
                begin, stop = max(first, low), min(end, high)
                if begin < stop:
                    part[begin - first : stop - first] = file.get_slice(name)[
                        begin - low : stop - low
                    ]
                    filled += stop - begin
            if filled != end - first:
                raise BadCheckpoint(directory, f"{name} has {filled} of {end - first} rows")
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise BadCheckpoint(directory, f"not readable ({error})") from error


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in _trained(module).items():
        yield name, parameter
        for moment in MOMENTS:
            if parameter in optimizer.state:
                yield f"{moment}:{name}", optimizer.state[parameter][moment]
