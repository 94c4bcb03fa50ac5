"""Where a proof that does not fit belongs: to another place of its own text, or to another text.

Only a proof that was refused is asked about, so nothing here can refuse an honest one. A copy needs
no computation: honest proofs of different contexts never have the same bytes.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from toploc.build import segments
from toploc.proof import WORD
from toploc.transcript import Transcript
from toploc.verdict import Limits
from toploc.verify import compare


@torch.no_grad()
def permuted(
    hidden: Tensor, proofs: bytes, topk: int = 128, decode_batching_size: int = 32
) -> list[str]:
    """The reason `permuted_chunks` if the worst chunk's proof fits another chunk of `hidden`.

    Args:
        hidden: the verifier's states [rows, hidden] in bf16.
        proofs: proofs that have the right length and were compared with them.
        topk: values of a proof.
        decode_batching_size: rows of a proof.
    """
    parts = segments(hidden, decode_batching_size, skip_prefill=True)
    words = np.frombuffer(proofs, dtype=">u2").reshape(-1, 1 + topk).astype(np.int64)
    moduli, coefficients = words[:, 0], words[:, 1:]
    worst = int(compare(parts, coefficients, moduli, topk).exp_mismatches.argmax())
    chunks = len(words)
    found = compare(
        parts,
        np.repeat(coefficients[worst : worst + 1], chunks, 0),
        moduli[worst].repeat(chunks),
        topk,
    )
    limits = Limits()
    fits = (found.exp_mismatches + found.sign_mismatches <= limits.exp_mismatches) & (
        found.mant_err_mean <= limits.mant_err_mean
    )
    fits[worst] = False
    if not fits.any():
        return []
    return [f"permuted_chunks: the proof at chunk {worst} is that of chunk {int(fits.argmax())}"]


class Copies:
    """The proofs of many traces, by their bytes."""

    def __init__(
        self, traces: Sequence[Transcript], topk: int = 128, decode_batching_size: int = 32
    ) -> None:
        self._size = WORD * (1 + topk)
        self._rows = decode_batching_size
        self._places: dict[bytes, list[tuple[Transcript, int]]] = {}
        for trace in traces:
            for chunk, proof in enumerate(self._chunks(trace)):
                self._places.setdefault(proof, []).append((trace, chunk))

    def of(self, trace: Transcript) -> list[str]:
        """The reason `copied_proof` if a proof of the trace is also one of another context."""
        for chunk, proof in enumerate(self._chunks(trace)):
            for other, place in self._places.get(proof, ()):
                if other.trace_id != trace.trace_id and self._context(
                    other, place
                ) != self._context(trace, chunk):
                    return [
                        f"copied_proof: the proof at chunk {chunk} is that of chunk {place} of "
                        f"trace {other.trace_id}, whose text is another"
                    ]
        return []

    def _chunks(self, trace: Transcript) -> list[bytes]:
        starts = range(0, len(trace.proofs), self._size)
        return [trace.proofs[start : start + self._size] for start in starts]

    def _context(self, trace: Transcript, chunk: int) -> tuple[list[int], list[int]]:
        """Everything that the states of a chunk depend on."""
        return list(trace.prompt_ids), list(trace.output_ids[: (chunk + 1) * self._rows - 1])
