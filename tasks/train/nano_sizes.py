"""The three sizes of the nano models: shape and training settings.

Invariant: every hidden size is at least 128, because an activation proof commits to the 128 largest
of a row of 32 hidden states and reads a full row at the end of an output.
"""

from dataclasses import dataclass
from typing import Any

from transformers import LlamaConfig

from tasks.train.nano_tokenizer import CONTEXT
from tasks.train.sft import SftConfig


@dataclass(frozen=True, kw_only=True)
class NanoSize:
    """Shape and training of one size."""

    name: str
    hidden: int
    layers: int
    heads: int
    intermediate: int
    steps: int
    learning_rate: float
    batch_size: int = 32

    def config(self, tokenizer: Any) -> LlamaConfig:
        """The architecture: Llama with tied embeddings."""
        return LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=self.hidden,
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
            learning_rate=self.learning_rate, batch_size=self.batch_size, max_steps=self.steps
        )


SIZES = {
    size.name: size
    for size in (
        NanoSize(name="s", hidden=128, layers=2, heads=4, intermediate=256, steps=1200,
                 learning_rate=3e-3),
        NanoSize(name="m", hidden=160, layers=3, heads=5, intermediate=448, steps=1000,
                 learning_rate=2.5e-3),
        NanoSize(name="l", hidden=192, layers=4, heads=6, intermediate=640, steps=1000,
                 learning_rate=2e-3),
    )
}  # fmt: skip
