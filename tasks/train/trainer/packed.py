"""Packed rows: the samples of a micro-batch as one sequence of tokens without padding.

Samples with the same prompt (a group) share what they have in common: the prompt and the tokens up
to where their outputs part are put through the model once, with the positions that they have in
each sample, and the gradients of the samples meet in them. Nothing but attention mixes tokens, and
attention keeps to its plan, so logits and gradients are those of each sample alone.
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
        """Cells that attention computes, padding counted."""
        return len(self.attention.cells)

    def without_loss(self) -> "PackedRow":
        """The same row as a filler."""
        return replace(self, mask=torch.zeros_like(self.mask))


class Branches:
    """The outputs behind one prompt, each without its last token, as a prefix tree.

    Its tokens are numbered 0, 1, ... as they are added; -1 stands for the prompt.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        """(number before, token id) -> number."""

    def __len__(self) -> int:
        return len(self._numbers)

    def missing(self, output_ids: Sequence[int]) -> int:
        """Tokens that the tree would have more with this output."""
        before = -1
        for at, token in enumerate(output_ids[:-1]):
            found = self._numbers.get((before, token))
            if found is None:
                return len(output_ids) - 1 - at
            before = found
        return 0

    def add(self, output_ids: Sequence[int]) -> list[int]:
        """The numbers of an output's tokens."""
        numbers: list[int] = []
        before = -1
        for token in output_ids[:-1]:
            before = self._numbers.setdefault((before, token), len(self._numbers))
            numbers.append(before)
        return numbers

    def inner(self) -> set[int]:
        """Numbers that another token follows."""
        return {before for before, _ in self._numbers}


def bundles(samples: Sequence[Sample], capacity: int) -> list[list[int]]:
    """Indices of samples that share one prompt, in bundles that fit into a row, in given order."""
    open_bundles: dict[tuple[int, ...], tuple[list[int], Branches]] = {}
    made: list[list[int]] = []
    for index, sample in enumerate(samples):
        if sample.tokens > capacity:
            raise BadSample(
                sample.sample_id,
                f"it has {sample.tokens} tokens and a row holds {capacity}; a sample is never cut "
                "(raise micro_batch_tokens if memory allows)",
            )
        bundle, tree = open_bundles.get(sample.prompt_ids, (None, Branches()))
        size = len(sample.prompt_ids) + len(tree) + tree.missing(sample.output_ids)
        if bundle is None or size > capacity:
            bundle, tree = open_bundles[sample.prompt_ids] = [], Branches()
            made.append(bundle)
        bundle.append(index)
        tree.add(sample.output_ids)
    return made


def bundle_tokens(samples: Sequence[Sample]) -> int:
    """Tokens of a bundle in a row: the prompt and the tree of its outputs."""
    tree = Branches()
    for sample in samples:
        tree.add(sample.output_ids)
    return len(samples[0].prompt_ids) + len(tree)


def distinct(samples: Sequence[Sample]) -> list[Sample]:
    """Those of a bundle that attention is computed for: no other one goes on from them."""
    tree = Branches()
    ends = {(-1, *tree.add(sample.output_ids))[-1]: sample for sample in samples}
    inner = tree.inner()
    return [sample for end, sample in ends.items() if end not in inner]


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
        tree, first = Branches(), len(ids)
        whole: dict[int, Tensor] = {}
        for sample in bundle:
            shared = len(sample.output_ids) - 1 - tree.missing(sample.output_ids)
            ids += sample.output_ids[shared:-1]
            positions.append(torch.arange(length + shared, length + len(sample.output_ids) - 1))
            own = tree.add(sample.output_ids)
            seen = torch.cat([prompt_places, first + torch.tensor(own, dtype=torch.int64)])
            whole[(-1, *own)[-1]] = seen
            sources.append(seen[length - 1 :])
            members.append(sample)
        inner = tree.inner()
        places += [seen for end, seen in whole.items() if end not in inner]
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
