"""The three sizes of the nano models: shape and training settings.

The sizes share the width of the residual stream, so each grows from the one before it (`grow.py`).
Its 128 elements are what an activation proof needs: it commits to the 128 largest of a piece of
hidden states, and the last piece of an output may be a single row.
"""

from dataclasses import dataclass
from typing import Any

from transformers import LlamaConfig

from tasks.train.nano_tokenizer import CONTEXT
from tasks.train.sft import SftConfig

HIDDEN = 128
HEAD_DIM = 32


@dataclass(frozen=True, kw_only=True)
class NanoSize:
    """Shape and training of one size."""

    name: str
    layers: int
    heads: int
    intermediate: int
    parent: str | None
    """The size whose last state this one grows from; None starts from random weights."""
    steps: int
    release_step: int
    """The published weights are those after this step; the last state is the next size's start."""
    learning_rate: float
    seed: int
    batch_size: int = 32

    def config(self, tokenizer: Any) -> LlamaConfig:
        """The architecture: Llama with tied embeddings."""
        return LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN,
            head_dim=HEAD_DIM,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=CONTEXT,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            tie_word_embeddings=True,
            initializer_range=0.05,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )

    def training(self) -> SftConfig:
        """The settings of its supervised training."""
        return SftConfig(
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            max_steps=self.steps,
            seed=self.seed,
        )


SIZES = {
    size.name: size
    for size in (
        NanoSize(name="s", layers=2, heads=4, intermediate=256, parent=None,
                 steps=1200, release_step=700, learning_rate=3e-3, seed=0),
        NanoSize(name="m", layers=3, heads=4, intermediate=640, parent="s",
                 steps=220, release_step=220, learning_rate=2e-3, seed=1),
        NanoSize(name="l", layers=4, heads=8, intermediate=1024, parent="m",
                 steps=500, release_step=500, learning_rate=2e-3, seed=2),
    )
}  # fmt: skip
