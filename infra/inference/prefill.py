"""What the model would have computed for given outputs: no decoding.

A prompt that several items share is read once, and so are items that are the same. An item of its
own takes one forward pass, or, to see what other honest ways of computing give, several over a
cache.

Invariants: an item of its own is padded on the right, where causal attention cannot see it, so no
mask is needed; shared prompts are padded on the left and masked. A row's result does not depend on
the padding. The head runs on output rows only.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from infra.inference.decoding import PREFILL_TOKENS, group_ends, left_padded
from infra.inference.errors import BadItem
from infra.inference.loading import CausalModel
from infra.inference.protocol import Item


def prefill(
    model: CausalModel, items: Sequence[Item], step: int | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Hidden states (bfloat16) and logits (float32) of the output rows of each item, in order.

    Items that are the same have the same tensors, which are not to be changed.
    `step` is the number of tokens that a forward pass reads of each text; None reads all at once.
    """
    for at, (prompt, output) in enumerate(items):
        problem = item_problem(model, prompt, output)
        if problem:
            raise BadItem(at, problem)
    results: dict[int, tuple[Tensor, Tensor]] = {}
    families: dict[tuple[int, ...], list[int]] = defaultdict(list)
    firsts: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    first_of = [firsts.setdefault((tuple(p), tuple(o)), at) for at, (p, o) in enumerate(items)]
    for (prompt, output), at in firsts.items():
        if output:
            families[prompt].append(at)
    shared = {
        prompt: members for prompt, members in families.items() if step is None and len(members) > 1
    }
    for at, rows in _of_shared_prompts(model, shared, items):
        results[at] = (rows.to(torch.bfloat16), model.logits(rows))
    lengths = [len(prompt) + len(output) - 1 for prompt, output in items]
    alone = (at for prompt in families.keys() - shared.keys() for at in families[prompt])
    order = sorted(alone, key=lambda at: (lengths[at], at))
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
    return [results.get(at, nothing) for at in first_of]


def _of_shared_prompts(
    model: CausalModel, families: dict[tuple[int, ...], list[int]], items: Sequence[Item]
) -> Iterator[tuple[int, Tensor]]:
    """(item, hidden rows that produced its output tokens) of items that share prompts."""
    prompts = sorted(families, key=len)
    first = 0
    for end in group_ends([len(prompt) for prompt in prompts], PREFILL_TOKENS) if prompts else []:
        ids, mask = left_padded(prompts[first:end])
        read = DynamicCache()
        ends = model.body(
            input_ids=ids,
            attention_mask=None if mask.all() else mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=read,
            use_cache=True,
        ).last_hidden_state[:, -1]
        members = [
            (place, at)
            for place, prompt in enumerate(prompts[first:end])
            for at in families[prompt]
        ]
        members.sort(key=lambda member: len(items[member[1]][1]))
        begin = 0
        for stop in group_ends([len(items[at][1]) for _, at in members], PREFILL_TOKENS):
            part = members[begin:stop]
            places = torch.tensor([place for place, _ in part])
            outputs = [items[at][1] for _, at in part]
            further = _after(model, read, mask, places, outputs)
            for row, (place, at) in enumerate(part):
                own = further[row, : len(outputs[row]) - 1]
                yield at, torch.cat([ends[place : place + 1], own])
            begin = stop
        first = end


def _after(
    model: CausalModel,
    read: DynamicCache,
    mask: Tensor,
    places: Tensor,
    outputs: Sequence[Sequence[int]],
) -> Tensor:
    """Hidden states [rows, width, hidden] of outputs without their last tokens.

    `read` has the prompts, left-padded by `mask`; `places` says which one is before each output.
    """
    width = max(map(len, outputs)) - 1
    if width == 0:
        return torch.empty((len(outputs), 0, model.hidden_size), dtype=read.layers[0].keys.dtype)
    ids = torch.zeros((len(outputs), width), dtype=torch.int64)
    for row, output in enumerate(outputs):
        ids[row, : len(output) - 1] = torch.tensor(output[:-1])
    cache = DynamicCache()
    for number, layer in enumerate(read.layers):
        cache.update(layer.keys[places], layer.values[places], number)
    seen = torch.cat([mask[places], torch.ones_like(ids, dtype=torch.bool)], dim=1)
    hidden: Tensor = model.body(
        input_ids=ids,
        attention_mask=None if seen.all() else seen,
        position_ids=mask[places].sum(1, keepdim=True) + torch.arange(width),
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return hidden


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
