"""Work units: floating point operations of a trace, from its token counts and the model's shape.

Counts matrix products of a decoder with gated feed-forward layers, two operations for each
multiplication with addition, every token at its own place in the text: attention over the t tokens
up to it, the head for output tokens only. Both sides compute the same whole number, whatever the
engine, batch or cache.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WorkUnits:
    """Shape of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int

    @classmethod
    def of_directory(cls, directory: Path) -> "WorkUnits":
        """From a model directory's config.json."""
        config = json.loads((directory / "config.json").read_text())
        heads = int(config["num_attention_heads"])
        return cls(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or config["hidden_size"] // heads),
            intermediate=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
        )

    def flops(self, prompt: int, output: int) -> tuple[int, int]:
        """Operations for so many prompt tokens, and for so many output tokens after them."""
        return (
            self._text(0, prompt),
            self._text(prompt, prompt + output) + 2 * output * self.hidden * self.vocabulary,
        )

    def _text(self, first: int, end: int) -> int:
        queries = self.heads * self.head_size
        projections = 2 * self.hidden * (queries + self.kv_heads * self.head_size)
        per_token = 2 * (projections + 3 * self.hidden * self.intermediate)
        places = end * (end + 1) // 2 - first * (first + 1) // 2
        return self.layers * (per_token * (end - first) + 4 * queries * places)
