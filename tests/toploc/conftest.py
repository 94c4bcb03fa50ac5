"""Reference vectors made by the PyPI package toploc 0.1.6."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Case:
    activations: Tensor
    topk: int
    batching: int
    proofs: list[bytes]
    factors: list[float]
    stats: list[list[list[float]]]


def load_cases() -> list[Case]:
    arrays = np.load(DATA / "handed.npz")
    cases = []
    for entry in json.loads((DATA / "handed.json").read_text()):
        bits = arrays[f"a{entry['i']}"].view(np.int16).copy()
        cases.append(
            Case(
                torch.from_numpy(bits).view(getattr(torch, entry["dtype"])),
                entry["k"],
                entry["B"],
                [bytes.fromhex(p) for p in entry["proofs"]],
                entry["factors"] if entry.get("stats") else [],
                entry.get("stats") or [],
            )
        )
    return cases


@pytest.fixture(scope="session")
def handed() -> list[Case]:
    return load_cases()


@pytest.fixture
def hidden() -> Tensor:
    """Two and a half chunks of heavy-tailed hidden states, as language models have them."""
    generator = torch.Generator().manual_seed(3)
    channels = torch.rand(256, generator=generator) ** 4 * 20 + 0.5
    return (torch.randn(80, 256, generator=generator) * channels).bfloat16()
