"""The batched decode loop: each prompt is read once, then one token per branch and step.

A branch is what several requests have in common: the same prompt and the same output so far. The
model computes it once, however many requests are on it; where they draw different tokens it forks.
Samples of one prompt (GRPO's groups, pass rates) share their first tokens, and short answers nearly
all of them.

Invariants:
- All branches are at the same output position, so pieces of hidden states are aligned by position.
- The order of branches, and when one ends, depend only on the batch and its tokens: the same batch
  gives the same tokens. Sampling depends only on a branch's logits, a request's seed and the
  position.
- Logits exist for the last position of each branch only, never for prompts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infra.inference.cache import BlockCache
from infra.inference.loading import CausalModel
from infra.inference.protocol import PROOF_ROWS, FinishReason, HiddenSink, Piece, Request
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


@dataclass
class Branch:
    """Requests of one prompt that have the same output so far."""

    rows: list[Row]

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The prompt."""
        return self.rows[0].request.prompt_ids

    @property
    def token(self) -> int:
        """The last output token."""
        return self.rows[0].output_ids[-1]


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
        prompts: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            prompts.setdefault(row.request.prompt_ids, []).append(row)
        self._live = [
            Branch(prompts[prompt]) for prompt in sorted(prompts, key=lambda ids: (len(ids), ids))
        ]
        longest = max(row.limit for row in rows)
        widest = len(self._live[-1].prompt_ids)
        self._cache = BlockCache(model.layers, len(rows), widest, longest)
        self._pieces = torch.empty((len(rows), PROOF_ROWS, model.hidden_size), dtype=torch.bfloat16)

    def run(self) -> None:
        """Decode until every row has finished."""
        hidden = self._prefill()
        position = 0
        while True:
            self._draw(hidden, position)
            self._hand_out(position)
            self._fork()
            if not self._live:
                return
            hidden = self._step(position)
            position += 1

    def _prefill(self) -> Tensor:
        """Fill the cache with the prompts; the last hidden state of each."""
        prompts = [branch.prompt_ids for branch in self._live]
        last: list[Tensor] = []
        first = 0
        for end in group_ends([len(prompt) for prompt in prompts], PREFILL_TOKENS):
            ids, mask = left_padded(prompts[first:end])
            self._cache.begin_prefill(first, end)
            output = self._model.body(
                input_ids=ids,
                attention_mask=None if mask.all() else mask,
                position_ids=(mask.cumsum(1) - 1).clamp(min=0),
                past_key_values=self._cache,
                use_cache=True,
            )
            last.append(output.last_hidden_state[:, -1])
            first = end
        return torch.cat(last)

    def _step(self, position: int) -> Tensor:
        """Feed the tokens of `position`; the hidden states that produce the next ones."""
        lengths = torch.tensor([len(branch.prompt_ids) for branch in self._live])
        longest = int(lengths.max())
        self._cache.begin_step(len(self._live), longest)
        # Column c of the window holds position c - (longest - length) of a branch.
        mask = torch.arange(longest + position + 1) >= (longest - lengths)[:, None]
        output = self._model.body(
            input_ids=torch.tensor([[branch.token] for branch in self._live]),
            attention_mask=None if mask.all() else mask,
            position_ids=(lengths + position).unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
        )
        self._cache.end_step()
        hidden: Tensor = output.last_hidden_state[:, -1]
        return hidden

    def _draw(self, hidden: Tensor, position: int) -> None:
        """Sample the token of `position` for each row and note what it ends."""
        logits = self._model.logits(hidden)
        sound = torch.isfinite(logits.amax(dim=1)) & torch.isfinite(hidden).all(dim=1)
        if not bool(sound.all()):
            logits[~sound] = 0.0
        rows = [row for branch in self._live for row in branch.rows]
        sizes = torch.tensor([len(branch.rows) for branch in self._live])
        seeds = torch.tensor([row.request.seed for row in rows], dtype=torch.int64)
        positions = torch.full_like(seeds, position)
        tokens, logprobs = sample(logits.repeat_interleave(sizes, 0), seeds, positions, self._rule)
        self._pieces[: len(self._live), position % PROOF_ROWS] = hidden.to(torch.bfloat16)
        fine_rows = sound.repeat_interleave(sizes).tolist()
        for row, token, logprob, fine in zip(
            rows, tokens.tolist(), logprobs.tolist(), fine_rows, strict=True
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
        pieces: list[Piece] = []
        leaving: list[Row] = []
        for slot, branch in enumerate(self._live):
            piece: Tensor | None = None
            for row in branch.rows:
                if not full and not row.finish_reason:
                    continue
                count = len(row.output_ids) - row.handed_out
                if count:
                    if piece is None:  # the rows of a branch have it in common
                        piece = self._pieces[slot, :count].clone()
                    pieces.append((row.request.trace_id, row.handed_out, piece))
                row.handed_out += count
                leaving.append(row)
        if pieces and self._on_hidden is not None:
            self._on_hidden(pieces)
        for row in leaving:
            if row.finish_reason:
                self._finished(row)

    def _fork(self) -> None:
        """One branch per token that was drawn, in places 0, 1, ...; what has ended is dropped."""
        staying: list[tuple[int, Branch]] = []
        forks: list[tuple[int, Branch]] = []
        for place, branch in enumerate(self._live):
            drawn: dict[int, list[Row]] = {}
            for row in branch.rows:
                if not row.finish_reason:
                    drawn.setdefault(row.output_ids[-1], []).append(row)
            for number, rows in enumerate(drawn.values()):
                (forks if number else staying).append((place, Branch(rows)))
        count = len(staying) + len(forks)
        at = {place: branch for place, branch in staying if place < count}
        moves = [(place, branch) for place, branch in staying if place >= count] + forks
        free = [place for place in range(count) if place not in at]
        at |= {place: branch for place, (_, branch) in zip(free, moves, strict=True)}
        self._live = [at[place] for place in range(count)]
        if moves:
            # A branch that stays is below `count` and is not written, or above it: none is read
            # after it is written.
            to, by = torch.tensor(free), torch.tensor([place for place, _ in moves])
            self._pieces[to] = self._pieces[by]
            self._cache.copy_rows(to, by)


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
