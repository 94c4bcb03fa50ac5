"""What the model would have computed for given outputs: no decoding.

One forward pass, or, to see what other honest ways of computing give, several over a cache.

Invariants: padding is on the right, where causal attention cannot see it, so no mask is needed and
a row's result does not depend on the padding. The head runs on output rows only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from infra.inference.decoding import PREFILL_TOKENS, group_ends
from infra.inference.errors import BadItem
from infra.inference.loading import CausalModel
from infra.inference.protocol import Item


def prefill(
    model: CausalModel, items: Sequence[Item], step: int | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Hidden states (bfloat16) and logits (float32) of the output rows of each item, in order.

    `step` is the number of tokens that a forward pass reads of each text; None reads all at once.
    """
    for at, (prompt, output) in enumerate(items):
        problem = item_problem(model, prompt, output)
        if problem:
            raise BadItem(at, problem)
    results: dict[int, tuple[Tensor, Tensor]] = {}
    lengths = [len(prompt) + len(output) - 1 for prompt, output in items]
    order = sorted(
        (at for at, (_, output) in enumerate(items) if output), key=lambda at: lengths[at]
    )
    first = 0
    widths = [min(lengths[at], step or lengths[at]) for at in order]
    for end in group_ends(widths, PREFILL_TOKENS) if order else []:
        group = order[first:end]
        hidden = _last_hidden(model, [items[at] for at in group], step)
        for at, rows in zip(group, hidden, strict=True):
            results[at] = (rows.to(torch.bfloat16), model.logits(rows))
        first = end
    nothing = (
        torch.empty((0, model.hidden_size), dtype=torch.bfloat16),
        torch.empty((0, model.vocab_size)),
    )
    return [results.get(at, nothing) for at in range(len(items))]


def _last_hidden(model: CausalModel, items: Sequence[Item], step: int | None) -> list[Tensor]:
    """Hidden rows that produced the output tokens of each item."""
    texts = [[*prompt, *output[:-1]] for prompt, output in items]
    ids = torch.zeros((len(texts), max(map(len, texts))), dtype=torch.int64)
    for at, text in enumerate(texts):
        ids[at, : len(text)] = torch.tensor(text)
    if step is None:
        hidden = model.body(input_ids=ids, use_cache=False).last_hidden_state
    else:
        cache = DynamicCache()
        hidden = torch.cat(
            [
                model.body(input_ids=part, past_key_values=cache, use_cache=True).last_hidden_state
                for part in torch.split(ids, step, dim=1)
            ],
            dim=1,
        )
    return [
        hidden[at, len(prompt) - 1 : len(prompt) + len(output) - 1]
        for at, (prompt, output) in enumerate(items)
    ]


def item_problem(model: CausalModel, prompt: Sequence[int], output: Sequence[int]) -> str | None:
    """Why an item cannot be put through the model, or None."""
    problem = ids_problem(model, prompt) or (ids_problem(model, output) if output else None)
    if problem is None and len(prompt) + len(output) - 1 > model.context_length:
        problem = (
            f"{len(prompt)} prompt and {len(output)} output tokens exceed the context of "
            f"{model.context_length} tokens"
        )
    return problem


def ids_problem(model: CausalModel, ids: Sequence[int]) -> str | None:
    """Why token ids cannot be put through the model, or None."""
    if not ids:
        return "there is no token; give at least one"
    worst = min(min(ids), 0) or max(ids)
    if not 0 <= worst < model.vocab_size:
        return f"token id {worst} is outside the vocabulary of 0 to {model.vocab_size - 1}"
    return None
