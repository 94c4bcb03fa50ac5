"""How many floating-point operations passes over packed rows take; a multiplication and an addition
are two.

A weight that a token meets takes 2 operations forward, 2 for the gradient of its input and, if it
is trained, 2 for its own (arXiv 2001.08361, table 1). The head meets output tokens only, and an
embedding that is looked up takes none. Causal attention takes 2 n^2 for each head and each of its
dimensions forward, padding counted, and twice that backward. Layers that are computed again for the
backward pass to save memory are not counted twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tasks.train.trainer.packed import PackedRow, bundle_tokens, distinct
from tasks.train.trainer.policy import Policy
from tasks.train.trainer.sample import Sample


@dataclass(frozen=True)
class Operations:
    """The sizes of a policy that operations depend on."""

    body: int
    """Weights that every token meets."""
    head: int
    trained_body: int
    trained_head: int
    attention: int
    """Layers x heads x dimensions of a head."""

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Of a policy as it is trained."""
        model, config = policy.model, policy.model.config
        head = model.get_output_embeddings().weight
        apart = {id(head), id(model.get_input_embeddings().weight)}
        body = [p for p in model.parameters() if id(p) not in apart]
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            body=sum(p.numel() for p in body),
            head=head.numel(),
            trained_body=sum(p.numel() for p in body if p.requires_grad),
            trained_head=head.numel() if head.requires_grad else 0,
            attention=config.num_hidden_layers * config.num_attention_heads * size,
        )

    def forward(self, rows: Sequence[PackedRow]) -> int:
        """A pass without gradients."""
        return sum(
            self._weights(row.tokens, len(row.targets)) + 2 * self.attention * row.attention.pairs
            for row in rows
        )

    def training(self, rows: Sequence[PackedRow]) -> int:
        """Forward and backward."""
        own = sum(
            2 * (self.trained_body * row.tokens + self.trained_head * len(row.targets))
            for row in rows
        )
        weights = sum(self._weights(row.tokens, len(row.targets)) for row in rows)
        return 3 * self.forward(rows) - weights + own

    def bundle(self, samples: Sequence[Sample]) -> int:
        """A pass without gradients over samples that share their prompt, without padding."""
        outputs = sum(len(sample.output_ids) for sample in samples)
        pairs = sum(sample.tokens**2 for sample in distinct(samples))
        return self._weights(bundle_tokens(samples), outputs) + 2 * self.attention * pairs

    def _weights(self, tokens: int, outputs: int) -> int:
        return 2 * (self.body * tokens + self.head * outputs)
