"""Attention of a packed row: every sample sees its own prompt and itself, nothing else.

A row holds each token once; what several samples begin with lies in it once. For attention alone
the tokens are laid out sample by sample (`AttentionPlan.cells`), without samples that are the
beginning of another or the same. On a CPU samples of like length stand side by side as the rows of
one batch, padded on the right, where causal attention cannot see; on a GPU in half precision they
follow one another without padding and go through flash attention for variable lengths. No mask over
the whole row exists, so the cost grows with the sum of the squares of the lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from tasks.train.trainer.errors import AttentionUnsupported

NAME = "packed"
WASTE = 1000
"""Query and key pairs of a batch that are padding, at most: as many as cost one more call."""
IGNORED = {"dropout", "position_ids", "use_cache", "is_causal", "sliding_window"}


@dataclass(frozen=True)
class AttentionPlan:
    """Where the tokens of a packed row stand while attention is computed.

    cells: int64 [M], the row's token at each cell. home: int64 [T], one cell of each token.
    filled: cells that are no padding. shapes: (samples, width) of the padded batches, one after
    another, or none. ends: int32 [samples + 1], the samples' ends, where they are not padded.
    """

    cells: Tensor
    home: Tensor
    longest: int
    filled: int
    shapes: tuple[tuple[int, int], ...] = ()
    ends: Tensor | None = None

    @property
    def pairs(self) -> int:
        """Query and key pairs, of which a causal mask leaves half."""
        if self.ends is not None:
            return int(self.ends.long().diff().square().sum())
        return sum(samples * width**2 for samples, width in self.shapes)


def plan_attention(places: Sequence[Tensor], tokens: int, padded: bool) -> AttentionPlan:
    """The plan for samples given as the places (int64) of their tokens in a row of `tokens`."""
    order = sorted(range(len(places)), key=lambda at: -len(places[at]))
    lengths = [len(places[at]) for at in order]
    if not padded:
        cells = torch.cat([places[at] for at in order])
        ends = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
        return AttentionPlan(cells, _home(cells, tokens), lengths[0], len(cells), ends=ends)
    shapes, columns, first = [], [], 0
    for end in _batch_ends(lengths):
        width = lengths[first]
        for at in order[first:end]:
            place = places[at]
            columns.append(torch.cat([place, place[-1:].expand(width - len(place))]))
        shapes.append((end - first, width))
        first = end
    cells = torch.cat(columns)
    home = _home(cells, tokens)
    return AttentionPlan(cells, home, lengths[0], sum(lengths), shapes=tuple(shapes))


def _batch_ends(lengths: Sequence[int]) -> list[int]:
    """Ends of batches of falling lengths, none with more than WASTE padded pairs."""
    ends: list[int] = []
    longest, waste = lengths[0], 0
    for at, length in enumerate(lengths):
        waste += longest**2 - length**2
        if waste > WASTE:
            ends.append(at)
            longest, waste = length, 0
    return [*ends, len(lengths)]


def _home(cells: Tensor, tokens: int) -> Tensor:
    """The first cell of each token: padding repeats a token behind its own cell."""
    home = torch.full((tokens,), len(cells))
    return home.scatter_reduce(0, cells, torch.arange(len(cells)), "amin")


class _Take(torch.autograd.Function):
    """Rows of [n, ...] by index; the gradients of a row taken twice add up."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = source.shape[0]
        return source.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,), (index,) = grads, ctx.saved_tensors
        return grad.new_zeros((ctx.rows, *grad.shape[1:])).index_add_(0, index, grad), None


def _take(source: Tensor, index: Tensor) -> Tensor:
    taken: Tensor = _Take.apply(source, index)  # type: ignore[no-untyped-call]
    return taken


def packed_attention(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    plan: AttentionPlan,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sample; [1, heads, T, head size] -> [1, T, heads, head size]."""
    window = kwargs.get("sliding_window")
    odd = {name for name, given in kwargs.items() if given is not None and name not in IGNORED}
    if odd or (window is not None and window < plan.longest) or kwargs.get("dropout"):
        raise AttentionUnsupported(sorted(odd), window, plan.longest)
    heads = query.shape[1]
    q, k, v = (_take(t[0].transpose(0, 1), plan.cells) for t in (query, key, value))
    if plan.ends is not None:
        from torch.nn.attention.varlen import varlen_attn  # torch 2.10; no CPU needs it

        out: Any = varlen_attn(
            q, k, v, plan.ends, plan.ends, plan.longest, plan.longest,
            scale=scaling, window_size=(-1, 0), enable_gqa=heads != k.shape[1],
        )  # fmt: skip
    else:
        parts, first = [], 0
        for samples, width in plan.shapes:
            piece = slice(first, first + samples * width)
            qs, ks, vs = (
                t[piece].view(samples, width, *t.shape[1:]).transpose(1, 2) for t in (q, k, v)
            )
            attended = scaled_dot_product_attention(
                qs, ks, vs, is_causal=True, scale=scaling, enable_gqa=heads != k.shape[1]
            )
            parts.append(attended.transpose(1, 2).flatten(0, 1))
            first += samples * width
        out = torch.cat(parts) if len(parts) > 1 else parts[0]
    return _take(out, plan.home).unsqueeze(0), None


def register() -> None:
    """Make the function known to transformers by its name; it needs no mask."""
    AttentionInterface.register(NAME, packed_attention)
