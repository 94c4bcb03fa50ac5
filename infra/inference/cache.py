"""The key/value cache of a decoding batch: one preallocated block per layer.

A `DynamicCache` copies itself at each token. Here a step writes one column in place, and a row is
copied only where a branch of the batch forks, or into the gap of one that has ended.

Invariants: the prompts end at column `width`, so every row's next token goes to the same column;
columns before a row's prompt are masked and finite; the model sees only the live rows and the
columns from the longest live prompt to the last one written, and nothing sets the others.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, empty
from transformers.cache_utils import Cache, DynamicLayer

GROWTH = 128
"""Columns added when the block is full."""


@dataclass
class Window:
    """The part of the blocks that the running forward pass reads and writes."""

    batch: int
    width: int
    room: int
    """Columns for output tokens that a block begins with."""
    rows: slice
    begin: int
    end: int
    prefilling: bool


class BlockLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values, [batch, heads, columns, head size]."""

    def __init__(self, window: Window):
        super().__init__()
        self.is_initialized: bool = False
        self.window = window

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new columns; give back what the queries attend to."""
        window = self.window
        if not self.is_initialized:
            _, heads, _, size = key_states.shape
            shape = (window.batch, heads, window.width + window.room, size)
            self.keys = empty(shape, dtype=key_states.dtype, device=key_states.device)
            self.values = empty(
                (*shape[:3], value_states.shape[3]),
                dtype=value_states.dtype,
                device=value_states.device,
            )
            self.is_initialized = True
        if window.prefilling:
            first = window.width - key_states.shape[2]
            columns = slice(first, window.width)
            for block, states in ((self.keys, key_states), (self.values, value_states)):
                block[window.rows, :, :first] = 0.0
                block[window.rows, :, columns] = states
            return key_states, value_states
        if window.end == self.keys.shape[2]:
            self.keys, self.values = _grown(self.keys), _grown(self.values)
        self.keys[window.rows, :, window.end] = key_states[:, :, 0]
        self.values[window.rows, :, window.end] = value_states[:, :, 0]
        seen = slice(window.begin, window.end + 1)
        return self.keys[window.rows, :, seen], self.values[window.rows, :, seen]

    def get_seq_length(self) -> int:
        """Columns that the queries see before their own."""
        return 0 if self.window.prefilling else self.window.end - self.window.begin


def _grown(block: Tensor) -> Tensor:
    batch, heads, columns, size = block.shape
    larger = block.new_empty((batch, heads, columns + GROWTH, size))
    larger[:, :, :columns] = block
    return larger


class BlockCache(Cache):  # type: ignore[misc]
    """The cache of `batch` rows at most; prompts have up to `width` tokens, outputs `limit`."""

    def __init__(self, layers: int, batch: int, width: int, limit: int):
        room = min(limit, GROWTH)
        self.window = Window(batch, width, room, slice(0, batch), 0, width, prefilling=True)
        super().__init__(layers=[BlockLayer(self.window) for _ in range(layers)])

    def begin_prefill(self, first: int, end: int) -> None:
        """The next forward pass reads the left-padded prompts of rows `first` to `end`."""
        self.window.rows = slice(first, end)
        self.window.prefilling = True

    def begin_step(self, live: int, longest_prompt: int) -> None:
        """The next forward pass reads one token of each of the first `live` rows."""
        self.window.rows = slice(0, live)
        self.window.begin = self.window.width - longest_prompt
        self.window.prefilling = False

    def end_step(self) -> None:
        """The column that the step wrote becomes part of the past."""
        self.window.end += 1

    def copy_rows(self, to: Tensor, by: Tensor) -> None:
        """Overwrite rows by others; none of these is overwritten."""
        seen = slice(self.window.begin, self.window.end)
        for layer in self.layers:
            for block in (layer.keys, layer.values):
                block[to, :, seen] = block[by, :, seen]
