"""Packed rows: the samples of a micro-batch as one sequence of tokens without padding.

Samples with the same prompt (a group) share its tokens: the prompt is put through the model once,
each output behind it with the positions that it would have alone, and the gradients of the samples
meet in the prompt. Nothing but attention mixes tokens, and attention keeps to its plan, so logits
and gradients are those of each sample alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tasks.train.trainer.attention import AttentionPlan, plan_attention
from tasks.train.trainer.errors import BadSample
from tasks.train.trainer.sample import Sample


@dataclass(frozen=True)
class PackedRow:
    """T tokens that go through the model and N output tokens that have a log-probability.

    ids, positions: int64 [1, T]. The rest is per output token, [N], samples one after another:
    sources: int64, the token of the row whose hidden state predicts it. targets: int64, its id.
    inverse_temperatures, behaviour_logprobs, advantages: float32. mask: bool, carries loss.
    sequence_ids: int64, number of its sample. kinds: of the samples.
    """

    ids: Tensor
    positions: Tensor
    attention: AttentionPlan
    sources: Tensor
    targets: Tensor
    inverse_temperatures: Tensor
    behaviour_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    sequence_ids: Tensor
    kinds: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """T."""
        return self.ids.shape[1]

    @property
    def cells(self) -> int:
        """Cells that attention computes, padding and shared prompts counted."""
        return len(self.attention.cells)

    def without_loss(self) -> "PackedRow":
        """The same row as a filler."""
        return replace(self, mask=torch.zeros_like(self.mask))


def bundles(samples: Sequence[Sample], capacity: int) -> list[list[int]]:
    """Indices of samples that share one prompt, in bundles that fit into a row, in given order."""
    open_bundles: dict[tuple[int, ...], tuple[list[int], int]] = {}
    made: list[list[int]] = []
    for index, sample in enumerate(samples):
        if sample.tokens > capacity:
            raise BadSample(
                sample.sample_id,
                f"it has {sample.tokens} tokens and a row holds {capacity}; a sample is never cut "
                "(raise micro_batch_tokens if memory allows)",
            )
        bundle, size = open_bundles.get(sample.prompt_ids, (None, 0))
        added = len(sample.output_ids) - 1
        if bundle is None or size + added > capacity:
            bundle, size = [], len(sample.prompt_ids)
            made.append(bundle)
        bundle.append(index)
        open_bundles[sample.prompt_ids] = bundle, size + added
    return made


def bundle_tokens(samples: Sequence[Sample]) -> int:
    """Tokens of a bundle in a row: the prompt once, every output without its last token."""
    return len(samples[0].prompt_ids) + sum(len(sample.output_ids) - 1 for sample in samples)


def pack_row(row: Sequence[Sequence[Sample]], device: torch.device, padded: bool) -> PackedRow:
    """One packed row of bundles; `padded` chooses the layout that attention needs."""
    ids: list[int] = []
    positions: list[Tensor] = []
    places: list[Tensor] = []
    sources: list[Tensor] = []
    members: list[Sample] = []
    for bundle in row:
        prompt = bundle[0].prompt_ids
        start, length = len(ids), len(prompt)
        prompt_places = torch.arange(start, start + length)
        ids += prompt
        positions.append(torch.arange(length))
        for sample in bundle:
            behind = sample.output_ids[:-1]
            own = torch.arange(len(ids), len(ids) + len(behind))
            ids += behind
            positions.append(torch.arange(length, length + len(behind)))
            places.append(torch.cat([prompt_places, own]))
            sources.append(places[-1][length - 1 :])
            members.append(sample)
    counts = torch.tensor([len(sample.output_ids) for sample in members])

    def spread(values: list[float] | list[bool] | list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).repeat_interleave(counts).to(device)

    attention = plan_attention(places, len(ids), padded)
    return PackedRow(
        ids=torch.tensor([ids], device=device),
        positions=torch.cat(positions).unsqueeze(0).to(device),
        attention=replace(
            attention,
            cells=attention.cells.to(device),
            home=attention.home.to(device),
            ends=None if attention.ends is None else attention.ends.to(device),
        ),
        sources=torch.cat(sources).to(device),
        targets=torch.tensor([i for s in members for i in s.output_ids], device=device),
        inverse_temperatures=spread([1 / s.temperature for s in members], torch.float32),
        behaviour_logprobs=torch.cat(
            [torch.tensor(s.behaviour_logprobs, dtype=torch.float32) for s in members]
        ).to(device),
        advantages=spread([s.advantage for s in members], torch.float32),
        mask=spread([s.trainable for s in members], torch.bool),
        sequence_ids=spread(list(range(len(members))), torch.int64),
        kinds=tuple(sample.kind for sample in members),
    )
