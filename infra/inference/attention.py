"""Attention for decoding with grouped queries.

transformers repeats keys and values for each query head when there is a mask, which at one query
token per row is most of the memory traffic. Here the query heads that share a key head are laid
side by side as query rows of that head: the same products, nothing copied. Longer queries
(prefill) go through transformers' own function.
"""

from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_grouped"


def grouped_attention(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one query token per row; [batch, 1, heads, head size]."""
    batch, heads, length, size = query.shape
    key_heads = key.shape[1]
    if length != 1 or heads == key_heads:
        attended: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return attended
    grouped = query.reshape(batch, key_heads, heads // key_heads, size)
    out = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(batch, 1, heads, value.shape[3]), None


def register() -> None:
    """Make the function known to transformers by its name."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
