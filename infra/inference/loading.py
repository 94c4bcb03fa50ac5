"""Loading a causal language model from a local directory, split into body and head.

Invariants: only safetensors are read (no pickle), no code of the directory is run, nothing is
downloaded. The head applied to the body's last hidden state gives exactly the model's logits; a
model that does more between the two (soft caps, scaled logits) is refused, because proofs commit to
what enters the head.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from infra.inference import attention
from infra.inference.errors import EngineUnsupported, WeightsDoNotFit

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAYER_TYPES = {"full_attention", "sliding_attention"}
ATTENTIONS = (attention.NAME, "sdpa", "eager")
"""Attention functions; the first is the engine's own, and what a node runs."""


@dataclass
class CausalModel:
    """A decoder-only model in evaluation mode."""

    body: Any
    """Token ids to last hidden states (after the final norm)."""
    head: Any
    """Last hidden states to logits."""
    parameters: dict[str, Tensor]
    """Name in the weight files -> parameter; tied ones have one name."""
    layers: int
    hidden_size: int
    vocab_size: int
    context_length: int
    eos_ids: frozenset[int]

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits in float32 of rows of hidden states."""
        out: Tensor = self.head(hidden)
        return out.float()


def load(model_dir: Path, model_id: str, dtype: str, kernel: str) -> CausalModel:
    """Read the weights of `model_dir` and check that this engine can prove the model."""
    if dtype not in DTYPES:
        raise EngineUnsupported(model_id, f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if kernel not in ATTENTIONS:
        raise EngineUnsupported(model_id, f"attention {kernel!r} is none of {ATTENTIONS}")
    attention.register()
    config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
    odd = set(getattr(config, "layer_types", None) or ()) - LAYER_TYPES
    if odd:
        raise EngineUnsupported(model_id, f"it has layers of type {', '.join(sorted(odd))}")
    # Our own commands show progress; a bar per engine process would garble it.
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        model_dir,
        dtype=DTYPES[dtype],
        local_files_only=True,
        use_safetensors=True,
        attn_implementation=kernel,
    ).eval()
    body, head = model.base_model, model.get_output_embeddings()
    _check_split(model, body, head, model_id)
    eos: set[int] = set()
    for source in (model.generation_config, config):
        given = getattr(source, "eos_token_id", None)
        eos.update(given if isinstance(given, list) else [] if given is None else [given])
    return CausalModel(
        body=body,
        head=head,
        parameters={name: value.detach() for name, value in model.named_parameters()},
        layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        vocab_size=head.weight.shape[0],
        context_length=config.max_position_embeddings,
        eos_ids=frozenset(eos),
    )


def replace_weights(model: CausalModel, model_dir: Path) -> None:
    """Copy the weights of `model_dir` into a loaded model of the same shape.

    All are looked at before the first is replaced: a file that does not fit changes nothing.
    """
    files: list[Any] = [
        safe_open(path, framework="pt") for path in sorted(model_dir.glob("*.safetensors"))
    ]
    where = {name: file for file in files for name in file.keys()}
    missing = sorted(model.parameters.keys() - where.keys())
    odd = [
        name
        for name, value in model.parameters.items()
        if name in where and where[name].get_slice(name).get_shape() != list(value.shape)
    ]
    if missing or odd:
        raise WeightsDoNotFit(model_dir, missing, odd)
    for name, value in model.parameters.items():
        value.copy_(where[name].get_tensor(name))


@torch.inference_mode()
def _check_split(model: Any, body: Any, head: Any, model_id: str) -> None:
    probe = torch.arange(8).remainder(head.weight.shape[0]).unsqueeze(0)
    hidden = body(input_ids=probe, use_cache=False).last_hidden_state
    whole = model(input_ids=probe, use_cache=False, logits_to_keep=1).logits
    if not torch.equal(head(hidden[:, -1:]), whole):
        raise EngineUnsupported(
            model_id, "its logits are not the head applied to the last hidden state"
        )
