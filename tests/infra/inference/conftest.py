"""A loaded tiny engine, and requests for it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from torch import Tensor

from infra.inference.protocol import Piece, Request
from infra.inference.transformers_engine import TransformersEngine


@pytest.fixture(scope="session")
def engine(tiny_model: Path) -> Iterator[TransformersEngine]:
    loaded = TransformersEngine(tiny_model, "tiny", "r0")
    yield loaded
    loaded.close()


@pytest.fixture
def make_request(engine: TransformersEngine) -> Callable[..., Request]:
    def make(text: str, seed: int, trace_id: str | None = None) -> Request:
        ids, _ = engine.render([{"role": "user", "content": text}])
        return Request(trace_id or f"{text}/{seed}", tuple(ids), seed)

    return make


class Pieces:
    """A sink that keeps what it was given."""

    def __init__(self) -> None:
        self.by_trace: dict[str, list[tuple[int, Tensor]]] = {}

    def __call__(self, pieces: Sequence[Piece]) -> None:
        for trace_id, start, rows in pieces:
            self.by_trace.setdefault(trace_id, []).append((start, rows))


@pytest.fixture
def pieces() -> Pieces:
    return Pieces()
