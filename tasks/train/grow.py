"""Grow a Llama model without changing what it computes.

New heads, new MLP neurons and new layers get random inputs and zero outputs, so the grown model's
logits are those of the small one, and gradients reach the new parts from the first step. A larger
model that starts this way skips the long plateau before a transformer learns to copy.
"""

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.train.errors import CannotGrow

OUTPUTS = ("o_proj", "down_proj")
"""Projections back into the residual stream: their new columns are zero."""

SAME = ("vocab_size", "hidden_size", "head_dim", "rope_parameters", "tie_word_embeddings")


@torch.no_grad()
def grow(small: Any, config: LlamaConfig) -> Any:
    """A model of the given shape that computes what `small` does."""
    for name in SAME:
        if getattr(small.config, name) != getattr(config, name):
            raise CannotGrow(name, getattr(small.config, name), getattr(config, name))
    for name in ("num_hidden_layers", "num_attention_heads", "intermediate_size"):
        if getattr(small.config, name) > getattr(config, name):
            raise CannotGrow(name, getattr(small.config, name), getattr(config, name))
    grown = LlamaForCausalLM(config)
    source = small.state_dict()
    for name, target in grown.state_dict().items():
        if name.split(".")[-2] in OUTPUTS:
            target.zero_()
        if name in source:
            target[tuple(slice(size) for size in source[name].shape)].copy_(source[name])
    return grown
