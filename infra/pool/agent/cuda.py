"""The proof of compute on cards: the arrays of infra/pool/challenge.py in torch."""

from collections.abc import Sequence
from typing import Any

from infra.pool.agent.machine import cards
from infra.pool.challenge import Arrays, Numpy


def devices() -> Sequence[Arrays]:
    """One for each card; the processor where there is none. torch is loaded for cards only."""
    if not cards():
        return [Numpy()]
    import torch

    return [Cuda(torch, number) for number in range(torch.cuda.device_count())] or [Numpy()]


class Cuda:
    """One card."""

    def __init__(self, torch: Any, number: int):
        self._torch, self._device = torch, f"cuda:{number}"

    def arange(self, start: int, stop: int) -> Any:
        """int64 numbers."""
        return self._torch.arange(start, stop, device=self._device, dtype=self._torch.int64)

    def product(self, a: Any, b: Any) -> Any:
        """bf16 in, float32 sums out: exact for whole numbers of four bits."""
        kind = self._torch.bfloat16
        return self._torch.mm(a.to(kind), b.to(kind), out_dtype=self._torch.float32).long()

    def host(self, values: Any) -> Any:
        """A numpy array."""
        return values.cpu().numpy()
