"""The interface of every inference engine.

An engine gets prompt token ids, sampling parameters and one seed per trace; it gives token ids and
log-probabilities, and hands out the last hidden states piece by piece while it decodes, so that
proofs are made inside the engine and the states are never collected in memory.

Invariants:
- A trace's randomness comes from its own seed and the output position, never from its batch.
- Row j of the hidden states is the state that produced output token j: the output of the model's
  final norm, the tensor that enters the head, rounded to bfloat16.
- `generate` answers every request, in order: a request that cannot be served is a completion with
  a status, not an exception.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from torch import Tensor

PROOF_ROWS = 32
"""Rows of hidden states that one proof commits to, counted from output position 0."""

Status: TypeAlias = Literal["ok", "prompt_too_long", "engine_error"]
FinishReason: TypeAlias = Literal["stop", "length", "error"]
Message: TypeAlias = dict[str, str]
Item: TypeAlias = tuple[Sequence[int], Sequence[int]]

Piece: TypeAlias = tuple[str, int, Tensor]
"""Trace id, first output position, and hidden rows (at most PROOF_ROWS, bfloat16)."""

HiddenSink: TypeAlias = Callable[[Sequence[Piece]], None]
"""Called with the pieces of different traces that are complete at the same time.

Traces that have said the same so far may be given one and the same tensor: it is not to be changed.
Pieces of a trace come in order; each but the last has PROOF_ROWS rows. An exception that a sink
raises ends the batch.
"""


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn; the same for all requests of a batch."""

    temperature: float = 1.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps every token."""
    min_p: float = 0.0
    max_tokens: int = 256
    """Upper limit of output tokens; the context left by the prompt may be a lower one."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion; the text ends before the first of them."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; give at least 1")
        if "" in self.stop:
            raise ValueError("stop holds an empty string, which would end every completion")


@dataclass(frozen=True)
class Request:
    """One trace to generate."""

    trace_id: str
    prompt_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Completion:
    """What came of one request."""

    trace_id: str
    output_ids: list[int]
    """With the end-of-sequence token, if that ended it."""
    logprobs: list[float]
    """One per output token, under the distribution it was sampled from."""
    text: str
    """Text of the output, after the prefix that the chat template had opened (`<think>`)."""
    status: Status
    finish_reason: FinishReason
    error: str | None
    seconds: float
    """From the start of the batch to the end of this completion."""


class Engine(Protocol):
    """A loaded model that generates, and that can be asked what it would have computed."""

    model_id: str
    revision: str
    name: str
    environment: str
    """What it runs on: `engine|processor|dtype|attention`; see `infra.inference.environment`."""
    eos_ids: frozenset[int]
    """Tokens that end a completion."""

    @property
    def context_length(self) -> int:
        """Tokens of prompt and output together."""
        ...

    def render(self, messages: list[Message]) -> tuple[list[int], str]:
        """Prompt ids with the generation prompt, and the text that the template opened."""
        ...

    def generate(
        self,
        batch: Sequence[Request],
        params: SamplingParams,
        on_hidden: HiddenSink | None = None,
    ) -> list[Completion]:
        """Decode a batch. The same batch and parameters give the same tokens."""
        ...

    def ended(self, output_ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether the last token ends the output: an end token, or the end of a stop string."""
        ...

    def prefill(self, items: Sequence[Item]) -> list[tuple[Tensor, Tensor]]:
        """Hidden states (bfloat16) and logits (float32) of given outputs, without decoding.

        An item is (prompt ids, output ids); rows are those of the output's tokens. The logits of
        one item take 4 bytes x output length x vocabulary: pass as many items as memory holds.
        """
        ...

    def close(self) -> None:
        """Free the model. The engine is unusable afterwards."""
        ...
