"""The batched decode loop: prefill each prompt once, then one token per live row and step.

Invariants:
- All rows are at the same output position, so pieces of hidden states are aligned by position.
- The order of rows, and when a row leaves, depend only on the batch and its tokens: the same batch
  gives the same tokens. Sampling depends only on a row's logits, its seed and the position.
- Logits exist for the last position of each row only, never for prompts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infra.inference.cache import BlockCache
from infra.inference.loading import CausalModel
from infra.inference.protocol import PROOF_ROWS, FinishReason, HiddenSink, Request
from toploc.sampling import SamplingRule, sample

PREFILL_TOKENS = 1024
"""Padded prompt tokens per forward pass; more gain nothing on a CPU and cost memory."""


@dataclass
class Row:
    """One request while it is decoded."""

    request: Request
    limit: int
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None
    handed_out: int = 0
    """Output positions whose hidden states have gone to the sink."""

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_ids)


class Decoding:
    """One batch on its way through the model.

    `ended(row)` says whether a row's last token is its end; `finished(row)` is called once per row,
    after its last piece of hidden states has gone to the sink.
    """

    def __init__(
        self,
        model: CausalModel,
        rows: Sequence[Row],
        rule: SamplingRule,
        ended: Callable[[Row], bool],
        finished: Callable[[Row], None],
        on_hidden: HiddenSink | None,
    ):
        self._model = model
        self._rule = rule
        self._ended = ended
        self._finished = finished
        self._on_hidden = on_hidden
        # Rows of one prompt lie side by side: it is read once. The sort is stable.
        self._live = sorted(rows, key=lambda row: (row.prompt_length, row.request.prompt_ids))
        self._seeds = torch.tensor([row.request.seed for row in self._live], dtype=torch.int64)
        longest = max(row.limit for row in rows)
        self._cache = BlockCache(model.layers, len(rows), self._live[-1].prompt_length, longest)
        self._pieces = torch.empty((len(rows), PROOF_ROWS, model.hidden_size), dtype=torch.bfloat16)

    def run(self) -> None:
        """Decode until every row has finished."""
        hidden = self._prefill()
        position = 0
        while True:
            self._draw(hidden, position)
            self._hand_out(position)
            self._drop_finished()
            if not self._live:
                return
            hidden = self._step(position)
            position += 1

    def _prefill(self) -> Tensor:
        """Fill the cache with the prompts; the last hidden state of each."""
        counts = Counter(row.request.prompt_ids for row in self._live)
        prompts = list(counts)
        last: list[Tensor] = []
        row, first = 0, 0
        for end in group_ends([len(prompt) for prompt in prompts], PREFILL_TOKENS):
            group = prompts[first:end]
            ids, mask = left_padded(group)
            copies = torch.tensor([counts[prompt] for prompt in group])
            self._cache.begin_prefill(row, copies)
            output = self._model.body(
                input_ids=ids,
                attention_mask=None if mask.all() else mask,
                position_ids=(mask.cumsum(1) - 1).clamp(min=0),
                past_key_values=self._cache,
                use_cache=True,
            )
            last.append(output.last_hidden_state[:, -1].repeat_interleave(copies, 0))
            row, first = row + int(copies.sum()), end
        return torch.cat(last)

    def _step(self, position: int) -> Tensor:
        """Feed the tokens of `position`; the hidden states that produce the next ones."""
        lengths = torch.tensor([row.prompt_length for row in self._live])
        longest = int(lengths.max())
        self._cache.begin_step(len(self._live), longest)
        # Column c of the window holds position c - (longest - length) of a row.
        mask = torch.arange(longest + position + 1) >= (longest - lengths)[:, None]
        output = self._model.body(
            input_ids=torch.tensor([row.output_ids[-1:] for row in self._live]),
            attention_mask=None if mask.all() else mask,
            position_ids=(lengths + position).unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache.end_step()
        hidden: Tensor = output.last_hidden_state[:, -1]
        return hidden

    def _draw(self, hidden: Tensor, position: int) -> None:
        """Sample the token of `position` for each live row and note what it ends."""
        logits = self._model.logits(hidden)
        sound = torch.isfinite(logits.amax(dim=1)) & torch.isfinite(hidden).all(dim=1)
        if not bool(sound.all()):
            logits[~sound] = 0.0
        positions = torch.full((len(self._live),), position, dtype=torch.int64)
        tokens, logprobs = sample(logits, self._seeds[: len(self._live)], positions, self._rule)
        self._pieces[: len(self._live), position % PROOF_ROWS] = hidden.to(torch.bfloat16)
        for row, token, logprob, fine in zip(
            self._live, tokens.tolist(), logprobs.tolist(), sound.tolist(), strict=True
        ):
            if not fine:
                row.finish_reason = "error"
                row.error = f"the model gave a value that is not finite at output token {position}"
                continue
            row.output_ids.append(token)
            row.logprobs.append(logprob)
            if self._ended(row):
                row.finish_reason = "stop"
            elif len(row.output_ids) == row.limit:
                row.finish_reason = "length"

    def _hand_out(self, position: int) -> None:
        """Give full pieces, and the last piece of rows that have finished, to the sink."""
        full = position % PROOF_ROWS == PROOF_ROWS - 1
        leaving = [(slot, row) for slot, row in enumerate(self._live) if full or row.finish_reason]
        pieces = []
        for slot, row in leaving:
            count = len(row.output_ids) - row.handed_out
            if count:
                piece = self._pieces[slot, :count].clone()
                pieces.append((row.request.trace_id, row.handed_out, piece))
            row.handed_out += count
        if pieces and self._on_hidden is not None:
            self._on_hidden(pieces)
        for _, row in leaving:
            if row.finish_reason:
                self._finished(row)

    def _drop_finished(self) -> None:
        """Close the gaps of finished rows with rows from the end."""
        live, slot = self._live, 0
        places = list(range(len(live)))
        while slot < len(live):
            if not live[slot].finish_reason:
                slot += 1
                continue
            moved, place = live.pop(), places.pop()
            if slot < len(live):
                live[slot], places[slot] = moved, place
        # A row that stays comes from beyond those that stay: none is read after it is written.
        moves = [(slot, place) for slot, place in enumerate(places) if slot != place]
        if moves:
            rows, by = torch.tensor(moves).unbind(1)
            self._seeds[rows] = self._seeds[by]
            self._pieces[rows] = self._pieces[by]
            self._cache.replace_rows(rows, by)


def group_ends(lengths: Sequence[int], budget: int) -> list[int]:
    """Ends of consecutive groups of ascending lengths whose padded size keeps to the budget.

    A group has at least one member, whatever its length.
    """
    ends: list[int] = []
    first = 0
    for at, length in enumerate(lengths):
        if at > first and (at + 1 - first) * length > budget:
            ends.append(at)
            first = at
    return [*ends, len(lengths)]


def left_padded(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token ids that end in the same column, and which of them are real."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.zeros((len(prompts), width), dtype=torch.int64)
    mask = torch.zeros((len(prompts), width), dtype=torch.bool)
    for at, prompt in enumerate(prompts):
        ids[at, width - len(prompt) :] = torch.tensor(prompt)
        mask[at, width - len(prompt) :] = True
    return ids, mask
