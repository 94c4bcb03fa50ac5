"""Building proofs from activations.

Chunks: unless `skip_prefill`, the first activation alone; then every `decode_batching_size`
following activations, flattened one after the other, the last chunk possibly shorter. Each chunk
gives one proof of its `topk` largest magnitudes.

`prove` raises what is wrong. The `build_proofs*` functions keep the contract of the PyPI package:
an engine must not stop because of a proof, so they log and return null proofs, which no verifier
takes.
"""

import base64
import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from toploc.errors import InvalidSettings, UnprovableActivations
from toploc.field import Ints, P
from toploc.proof import ProofPoly, Words, words_from_points
from toploc.select import top_k

logger = logging.getLogger(__name__)

Activations = Sequence[Tensor] | Tensor

_INFINITY = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00}


def batch_activations(
    activations: Activations, decode_batching_size: int, skip_prefill: bool = False
) -> list[Tensor]:
    """The chunks, each flat."""
    return [
        row
        for segment in segments(activations, decode_batching_size, skip_prefill)
        for row in segment
    ]


def segments(
    activations: Activations, decode_batching_size: int, skip_prefill: bool
) -> list[Tensor]:
    """The chunks in order, as few tensors [chunks, values] of equally long ones."""
    if decode_batching_size < 1:
        raise InvalidSettings(
            f"decode_batching_size is {decode_batching_size}; give the number of decode steps per "
            "proof, 32 as a rule"
        )
    if len(activations) == 0:
        return []
    parts = [] if skip_prefill else [activations[0].reshape(1, -1)]
    decode = activations[len(parts) :]
    if len(decode) == 0:
        return parts
    if not isinstance(decode, Tensor):
        sizes = {a.numel() for a in decode}
        if len(sizes) > 1:
            starts = range(0, len(decode), decode_batching_size)
            groups = [decode[i : i + decode_batching_size] for i in starts]
            return parts + [torch.cat([a.reshape(-1) for a in g]).reshape(1, -1) for g in groups]
        decode = torch.cat([a.reshape(1, -1) for a in decode])
    flat = decode.reshape(len(decode), -1)
    whole = len(flat) // decode_batching_size
    edge = whole * decode_batching_size
    if whole:
        parts.append(flat[:edge].reshape(whole, -1))
    if edge < len(flat):
        parts.append(flat[edge:].reshape(1, -1))
    return parts


def largest(parts: Sequence[Tensor], topk: int) -> tuple[Ints, Ints]:
    """Indices and bit patterns [chunks, topk] of the largest magnitudes of the chunks of all parts.

    Parts, [chunks, values] each, whose chunks are equally long are looked at together.
    """
    if not 1 <= topk <= P:
        raise InvalidSettings(f"topk is {topk}; give 1 to {P}, 128 as a rule")
    widths: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        widths.setdefault(part.shape[1], []).append(number)
    places = np.split(np.arange(sum(map(len, parts))), np.cumsum([len(part) for part in parts]))
    indices = np.empty((sum(map(len, parts)), topk), dtype=np.int64)
    patterns = np.empty_like(indices)
    for numbers in widths.values():
        own = np.concatenate([places[number] for number in numbers])
        joint = torch.cat([parts[number] for number in numbers])
        indices[own], patterns[own] = _largest(joint, topk)
    return indices, patterns


def _largest(segment: Tensor, topk: int) -> tuple[Ints, Ints]:
    """As `largest`, of one part."""
    if segment.dtype not in _INFINITY:
        raise UnprovableActivations(
            f"activations are {segment.dtype}; the field holds 16-bit patterns: convert to "
            "bfloat16 (or float16)"
        )
    if segment.shape[1] < topk:
        raise UnprovableActivations(
            f"a chunk has {segment.shape[1]} values, fewer than topk={topk}; such a short chunk "
            "cannot be proven: use a smaller topk"
        )
    bits = segment.view(torch.int16)
    columns = top_k(bits, topk)
    indices = columns.cpu().numpy()
    patterns = bits.gather(1, columns).cpu().numpy().astype(np.int64) & 0xFFFF
    # The largest magnitude comes first, so it tells whether all values are finite.
    if ((patterns[:, 0] & 0x7FFF) >= _INFINITY[segment.dtype]).any():
        raise UnprovableActivations(
            "activations hold NaN or infinity; such a computation cannot be proven: look for "
            "overflow in the model's dtype"
        )
    return indices, patterns


def _built(parts: Sequence[Tensor], topk: int) -> Words:
    """Proofs [chunks, 1 + topk] of all chunks, at least one; raises what makes them unprovable."""
    return words_from_points(*largest(parts, topk))


@torch.no_grad()
def prove(hidden: Tensor, *, topk: int = 128, decode_batching_size: int = 32) -> bytes:
    """Concatenated proofs of hidden states [rows, hidden], bf16: one per started chunk of rows."""
    return prove_all([hidden], topk=topk, decode_batching_size=decode_batching_size)[0]


@torch.no_grad()
def prove_all(
    texts: Sequence[Tensor], *, topk: int = 128, decode_batching_size: int = 32
) -> list[bytes]:
    """As `prove` of the hidden states of each text, of at least one; all are built together."""
    parts: list[Tensor] = []
    counts = []
    for hidden in texts:
        if hidden.dim() != 2 or len(hidden) == 0:
            raise UnprovableActivations(
                f"hidden states have shape {list(hidden.shape)}; give [rows, hidden], at least one "
                "row"
            )
        own = segments(hidden, decode_batching_size, skip_prefill=True)
        parts += own
        counts.append(sum(map(len, own)))
    built = np.split(_built(parts, topk), np.cumsum(counts)[:-1])
    return [proofs.tobytes() for proofs in built]


def build_proofs(
    activations: Activations, decode_batching_size: int, topk: int, skip_prefill: bool = False
) -> list[ProofPoly]:
    """One proof per chunk; null proofs, and a line in the log, when that is not possible."""
    proofs = build_proofs_bytes(activations, decode_batching_size, topk, skip_prefill)
    parsed = {proof: ProofPoly.from_bytes(proof) for proof in set(proofs)}  # null proofs once
    return [parsed[proof] for proof in proofs]


@torch.no_grad()
def build_proofs_bytes(
    activations: Activations, decode_batching_size: int, topk: int, skip_prefill: bool = False
) -> list[bytes]:
    """As `build_proofs`, as bytes."""
    try:
        parts = segments(activations, decode_batching_size, skip_prefill)
        return [proof.tobytes() for proof in _built(parts, topk)] if parts else []
    except Exception as error:
        logger.error("Error building proofs: %s", error)
        step = max(decode_batching_size, 1)
        null = ProofPoly.null(max(topk, 1)).to_bytes()
        return [null] * (1 + (len(activations) - 1 + step) // step)


def build_proofs_base64(
    activations: Activations, decode_batching_size: int, topk: int, skip_prefill: bool = False
) -> list[str]:
    """As `build_proofs`, as base64 text."""
    proofs = build_proofs_bytes(activations, decode_batching_size, topk, skip_prefill)
    return [base64.b64encode(proof).decode("ascii") for proof in proofs]
