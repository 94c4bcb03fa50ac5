"""A policy version as a model directory, the way transformers and the engines read it.

The weights have the dtype that the forward pass computes in, so an engine of that dtype has exactly
the trainer's policy. With adapters it is the merged model (W + alpha/rank * B A), or peft's own
files of the adapter alone.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from infra.models.directory import model_files
from tasks.train.trainer.config import LoraSettings
from tasks.train.trainer.files import whole_directory
from tasks.train.trainer.lora import WEIGHTS, factors, lora_layers, save_settings, saved_name
from tasks.train.trainer.policy import Policy
from tasks.train.trainer.ranks import Ranks, whole

INDEX = "model.safetensors.index.json"


@torch.no_grad()
def write_weights(
    directory: Path,
    ranks: Ranks,
    policy: Policy,
    start: Path,
    dtype: str,
    lora: LoraSettings | None,
) -> None:
    """Write the policy; all ranks call it, the first one writes."""
    alone = lora is not None and lora.save == "adapter"
    named = _adapter(policy) if alone else _model(policy)
    with whole_directory(directory, ranks) as temp:
        tensors = {}
        for name, tensor in named:  # all ranks, since a sharded tensor is gathered here
            tensor = tensor.to(getattr(torch, dtype))
            if ranks.first:
                tensors[name] = tensor.cpu().contiguous()
        if not ranks.first:
            return
        save_file(tensors, temp / (WEIGHTS if alone else "model.safetensors"), {"format": "pt"})
        if alone and lora is not None:
            save_settings(lora, temp)
            return
        for path in model_files(start):
            if path.suffix != ".safetensors" and path.name not in (INDEX, "config.json"):
                shutil.copyfile(path, temp / path.name)
        config = json.loads((start / "config.json").read_text())
        config.pop("torch_dtype", None)
        (temp / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=2) + "\n")


def _model(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """All weights under their names before any adapter, tied ones once."""
    adapted = lora_layers(policy.model)
    for name, parameter in policy.model.named_parameters():
        if ".lora_" in name:
            continue
        tensor = whole(parameter)
        owner = name.removesuffix(".base_layer.weight")
        if owner != name and owner in adapted:
            down, up, scale = factors(adapted[owner])
            tensor = tensor + scale * (whole(up) @ whole(down))
        yield name.replace(".base_layer.", "."), tensor
    held = set(dict(policy.model.named_parameters(remove_duplicate=False)))
    for name, buffer in policy.model.state_dict().items():
        if name not in held:
            yield name, buffer


def _adapter(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in policy.model.named_parameters():
        if ".lora_" in name:
            yield saved_name(name), whole(parameter)
